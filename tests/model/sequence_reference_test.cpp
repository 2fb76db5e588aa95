// The losses of sequence networks in training match those of PyTorch, from scripts/make_reference.
// Initial parameters, tokens and labels are hashes, which both sides compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lockstep/device/gpu.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/optimizer/updater.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/hashed.h"
#include "tests/model/support/reference_devices.h"
#include "tests/model/support/reference_file.h"
#include "tests/model/support/reference_training.h"

namespace lockstep::inline v0::model {
namespace {

// The constants of scripts/make_reference_sequences.py.
constexpr std::int64_t kSequenceBatch = 4;
constexpr std::int64_t kSequenceLength = 16;
constexpr std::int32_t kSequenceVocabulary = 24;
constexpr std::int32_t kSequenceClasses = 5;
constexpr std::int64_t kSequenceUnits = 16;
constexpr std::size_t kSequenceSteps = 20;
constexpr std::size_t kSequenceBatches = 3;
constexpr std::uint32_t kInitialSeed = 21;
constexpr std::uint32_t kTokensSeed = 500;
constexpr std::uint32_t kLabelsSeed = 600;

const NetworkInput kSequenceInput{
    .name = "tokens", .shape = {kSequenceLength}, .type = ElementType::int32};

Network bidirectional_gru() {
  Network network({kSequenceInput});
  network.add(Embedding({.vocabulary = kSequenceVocabulary, .dimension = 8}));
  network.add(GRU({.units = kSequenceUnits, .return_sequences = true, .bidirectional = true}));
  network.add(GRU({.units = kSequenceUnits}));
  network.add(Dense({.units = kSequenceClasses}));
  return network;
}

Network from_zoo(std::string_view name) {
  const std::array inputs = {zoo::DataInput{kSequenceInput, kSequenceVocabulary}};
  return zoo::make(name, inputs, kSequenceClasses);
}

struct SequenceCase {
  const char* name;
  Network (*make)();
  OptimizerOptions optimizer;
  float rate;
  bool at_positions;  // whether there is a label at each position, some of them masked
};

std::ostream& operator<<(std::ostream& out, const SequenceCase& one) { return out << one.name; }

using SequenceSetting = std::tuple<SequenceCase, device::DeviceKind>;
std::string name_of_sequence(const ::testing::TestParamInfo<SequenceSetting>& info) {
  const bool on_gpu = std::get<1>(info.param) == device::DeviceKind::gpu;
  return std::string(std::get<0>(info.param).name) + (on_gpu ? "_gpu" : "_cpu");
}

// Seeds follow the order of the names.
std::map<std::string, std::uint32_t> seeds_of(const Network& network) {
  std::map<std::string, std::uint32_t> seeds;
  for (const ParameterInfo& entry : network.parameters().entries()) seeds[entry.name] = 0;
  std::uint32_t seed = kInitialSeed;
  for (auto& [name, value] : seeds) value = seed++;
  return seeds;
}

std::vector<std::int32_t> sequence_labels(const SequenceCase& test) {
  const std::size_t samples = kSequenceBatches * kSequenceBatch;
  if (!test.at_positions) return hashed_below(kSequenceClasses, samples, kLabelsSeed);
  std::vector<std::int32_t> labels =
      hashed_below(kSequenceVocabulary + 2, samples * kSequenceLength, kLabelsSeed);
  for (std::int32_t& label : labels) label = std::max(label - 2, -1);
  return labels;
}

class SequenceReference : public ::testing::TestWithParam<SequenceSetting> {};

TEST_P(SequenceReference, TwentyStepsFollowPyTorch) {
  const auto& [test, kind] = GetParam();
  if (kind == device::DeviceKind::gpu && !device::gpu_is_available())
    GTEST_SKIP() << device::gpu_unavailable_reason();
  const ReferenceFile reference("sequences");
  const std::vector<float>& losses = reference.array(std::string(test.name) + "/losses").values;
  ASSERT_EQ(losses.size(), kSequenceSteps);

  const Network network = test.make();
  ReferenceTraining training(
      network, kind,
      [seeds = seeds_of(network)](const ParameterInfo& entry, std::span<float> values) {
        fill_hashed(entry, seeds.at(entry.name), values);
      });
  const std::vector<std::int32_t> tokens = hashed_below(
      kSequenceVocabulary, kSequenceBatches * kSequenceBatch * kSequenceLength, kTokensSeed);
  const std::vector<std::int32_t> labels = sequence_labels(test);
  const auto part = [](const std::vector<std::int32_t>& all, std::size_t batch) {
    const std::size_t size = all.size() / kSequenceBatches;
    return std::span(all).subspan(batch * size, size);
  };
  const std::unique_ptr<Updater> updater = training.updater(test.optimizer);
  for (std::size_t step = 0; step < kSequenceSteps; ++step) {
    const std::size_t batch = step % kSequenceBatches;
    const double loss = training.train({.samples = kSequenceBatch,
                                        .indices = part(tokens, batch),
                                        .targets = {.labels = part(labels, batch)}});
    EXPECT_NEAR(loss, losses[step], 1e-4 * static_cast<double>(losses[step])) << "step " << step;
    training.update(*updater, test.rate, static_cast<std::int64_t>(step) + 1);
  }
}

const SequenceCase kSequenceCases[] = {
    {"gpt", [] { return from_zoo("gpt:2x32x2"); }, AdamW{.weight_decay = 0.01f}, 3e-3f, true},
    {"lstm", [] { return from_zoo("lstm:2x16,embedding=8"); }, Sgd{.momentum = 0.9f}, 0.1f, false},
    {"gru", bidirectional_gru, Adam{}, 1e-2f, false},
};

// The constants of the pairs in scripts/make_reference_sequences.py.
constexpr std::int64_t kSourceLength = 10;
constexpr std::int32_t kTargetVocabulary = kSequenceVocabulary + 2;
constexpr std::uint32_t kSourceSeed = 700;
constexpr std::uint32_t kSourceLengthsSeed = 800;

class PairReference : public ::testing::TestWithParam<device::DeviceKind> {};

TEST_P(PairReference, TwentyStepsFollowPyTorch) {
  if (GetParam() == device::DeviceKind::gpu && !device::gpu_is_available())
    GTEST_SKIP() << device::gpu_unavailable_reason();
  const ReferenceFile reference("sequences");
  const std::vector<float>& losses = reference.array("seq2seq/losses").values;
  ASSERT_EQ(losses.size(), kSequenceSteps);

  const auto input = [](const char* name, std::int64_t length, std::int64_t categories) {
    return zoo::DataInput{{.name = name, .shape = {length}, .type = ElementType::int32},
                          categories};
  };
  const std::array inputs = {input("source", kSourceLength, kSequenceVocabulary),
                             input("source_segments", kSourceLength, 0),
                             input("tokens", kSequenceLength, kTargetVocabulary)};
  const Network network = zoo::make("seq2seq:2x16,embedding=8", inputs, 0);
  ReferenceTraining training(
      network, GetParam(),
      [seeds = seeds_of(network)](const ParameterInfo& entry, std::span<float> values) {
        fill_hashed(entry, seeds.at(entry.name), values);
      });
  constexpr std::size_t kSamples = kSequenceBatches * kSequenceBatch;
  const std::vector<std::int32_t> source =
      hashed_below(kSequenceVocabulary, kSamples * kSourceLength, kSourceSeed);
  const std::vector<std::int32_t> lengths =
      hashed_below(kSourceLength, kSamples, kSourceLengthsSeed);  // without the first token
  std::vector<std::int32_t> segments;
  for (const std::int32_t length : lengths)
    for (std::int32_t i = 0; i < kSourceLength; ++i) segments.push_back(i <= length ? 1 : 0);
  const std::vector<std::int32_t> tokens =
      hashed_below(kTargetVocabulary, kSamples * kSequenceLength, kTokensSeed);
  std::vector<std::int32_t> labels =
      hashed_below(kTargetVocabulary + 2, kSamples * kSequenceLength, kLabelsSeed);
  for (std::int32_t& label : labels) label = std::max(label - 2, -1);
  const auto part = [](const std::vector<std::int32_t>& all, std::size_t batch) {
    const std::size_t size = all.size() / kSequenceBatches;
    return std::span(all).subspan(batch * size, size);
  };
  const std::unique_ptr<Updater> updater = training.updater(Sgd{.momentum = 0.9f});
  for (std::size_t step = 0; step < kSequenceSteps; ++step) {
    const std::size_t batch = step % kSequenceBatches;
    const InputView views[] = {{.indices = part(source, batch)},
                               {.indices = part(segments, batch)},
                               {.indices = part(tokens, batch)}};
    const double loss = training.train(
        {.samples = kSequenceBatch, .targets = {.labels = part(labels, batch)}, .inputs = views});
    EXPECT_NEAR(loss, losses[step], 1e-4 * static_cast<double>(losses[step])) << "step " << step;
    training.update(*updater, 0.1f, static_cast<std::int64_t>(step) + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PairReference, ::testing::ValuesIn(reference_devices()),
                         [](const auto& one) {
                           return one.param == device::DeviceKind::gpu ? "gpu" : "cpu";
                         });

INSTANTIATE_TEST_SUITE_P(Models, SequenceReference,
                         ::testing::Combine(::testing::ValuesIn(kSequenceCases),
                                            ::testing::ValuesIn(reference_devices())),
                         name_of_sequence);

}  // namespace
}  // namespace lockstep::inline v0::model
