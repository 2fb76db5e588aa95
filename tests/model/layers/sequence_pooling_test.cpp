#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr std::size_t kPooled = 3;
constexpr std::size_t kPlaces = 4;
constexpr std::size_t kRow = 5;
// Padding at the end, between documents, and everywhere.
const std::vector<std::int32_t> kSegmentsOfSequences = {1, 1, 1, 0, 1, 0, 2, 2, 0, 0, 0, 0};

// Reads [T, D] shifted by a table, and optionally segments.
Network mean_network(bool has_segments) {
  constexpr auto kT = static_cast<std::int64_t>(kPlaces);
  std::vector<NetworkInput> inputs = {
      {.name = "values", .shape = {kT, static_cast<std::int64_t>(kRow)}}};
  if (has_segments)
    inputs.push_back({.name = "segments", .shape = {kT}, .type = ElementType::int32});
  Network network(inputs, "mean");
  std::vector<NodeId> mean_inputs = {network.add(PositionalEmbedding())};
  if (has_segments) mean_inputs.push_back(network.input("segments"));
  network.add(GlobalAveragePooling1D(), mean_inputs);
  return network;
}

// The mean in double, and its gradient: the weight of each value of a sequence.
std::vector<double> weights_of_positions(bool has_segments) {
  std::vector<double> weights;
  for (std::size_t sequence = 0; sequence < kPooled; ++sequence) {
    std::size_t count = 0;
    const auto counts = [&](std::size_t place) {
      return !has_segments || kSegmentsOfSequences[sequence * kPlaces + place] != 0;
    };
    for (std::size_t place = 0; place < kPlaces; ++place) count += counts(place) ? 1 : 0;
    for (std::size_t place = 0; place < kPlaces; ++place)
      weights.push_back(counts(place) ? 1.0 / static_cast<double>(count) : 0);
  }
  return weights;
}

TEST(GlobalAveragePooling1DLayer, AveragesPositionsThatAreNotPadding) {
  set_thread_budget(1);
  for (const bool has_segments : {false, true}) {
    device::HostAllocator allocator;
    CompiledModel model(std::make_shared<const Network>(mean_network(has_segments)),
                        device::Device{}, allocator, {});
    model.initialize(1);
    const std::vector<float> values = numbers(kPooled * kPlaces * kRow, 5);
    const std::vector<float> targets = numbers(kPooled * kRow, 6);
    std::vector<InputView> views = {{.features = values}};
    if (has_segments) views.push_back({.indices = kSegmentsOfSequences});
    const BatchView batch{
        .samples = kPooled, .targets = {.labels = {}, .values = targets}, .inputs = views};

    const std::vector<double> weights = weights_of_positions(has_segments);
    const std::span<const float> shift = model.parameters();
    std::vector<double> means(kPooled * kRow);
    for (std::size_t i = 0; i < values.size(); ++i)
      means[i / kRow / kPlaces * kRow + i % kRow] +=
          weights[i / kRow] *
          (static_cast<double>(values[i]) + static_cast<double>(shift[i % (kPlaces * kRow)]));
    const std::span<const float> outputs = model.predict_batch(batch);
    ASSERT_EQ(outputs.size(), means.size());
    for (std::size_t i = 0; i < means.size(); ++i) EXPECT_NEAR(outputs[i], means[i], 1e-6);

    model.train_batch(batch, {.global_samples = kPooled}, MeanSquaredError{});
    std::vector<double> gradients(kPlaces * kRow);  // for the shift, all sequences
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t output = i / kRow / kPlaces * kRow + i % kRow;
      gradients[i % gradients.size()] += weights[i / kRow] * 2 *
                                         (means[output] - static_cast<double>(targets[output])) /
                                         static_cast<double>(means.size());
    }
    ASSERT_GE(model.gradients().size(), gradients.size());  // padded
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_NEAR(model.gradients()[i], gradients[i], 1e-6) << has_segments;
  }
}

TEST(GlobalAveragePooling1DLayer, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Trial exact(mean_network(false), 3);
  Trial rounded(mean_network(false), 3, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.02f), exact.predict()));
}

TEST(GlobalAveragePooling1DLayer, RefusesOtherShapes) {
  EXPECT_EQ(input_error_of([] {
              Network network({4});
              network.add(GlobalAveragePooling1D());
            }),
            "[layer global_average_pooling1d (global_average_pooling1d)] expected an input "
            "[positions, width], got [4]");
  EXPECT_EQ(input_error_of([] {
              Network network({{.name = "values", .shape = {4, 2}},
                               {.name = "segments", .shape = {5}, .type = ElementType::int32}});
              network.add(GlobalAveragePooling1D(), {kInput, network.input("segments")});
            }),
            "[layer global_average_pooling1d (global_average_pooling1d)] expected segments [4], "
            "got [5]");
}

}  // namespace
}  // namespace lockstep::inline v0::model
