// Recomputed activations: which steps run again, that results are bit-identical, and that less
// memory is used.
#include "lockstep/model/compiled/recomputation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/test_layers.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Le;

// A step whose backward reads its inputs, as in a dense layer.
StepArrays reads_inputs(std::vector<int> inputs, std::size_t output_bytes) {
  return {.inputs = std::move(inputs),
          .output_bytes = output_bytes,
          .runs_backward = true,
          .inputs_in_backward = true};
}

std::vector<StepArrays> chain_of_steps(int steps, std::size_t bytes) {
  std::vector<StepArrays> chain = {reads_inputs({}, bytes)};
  for (int i = 1; i < steps; ++i) chain.push_back(reads_inputs({i - 1}, bytes));
  chain.back().is_output = true;
  return chain;
}

TEST(Recomputation, DividesAChainIntoAboutTheSquareRootOfItsSteps) {
  const Recomputation plan = plan_recomputation(chain_of_steps(101, 1000));
  EXPECT_EQ(plan.segments.front(), 0);
  EXPECT_GE(plan.segments.back(), 7);
  EXPECT_LE(plan.segments.back(), 11);
  EXPECT_EQ(std::ranges::count(plan.kept, true), plan.segments.back()) << "one for each boundary";
  EXPECT_TRUE(std::ranges::is_sorted(plan.segments));
}

TEST(Recomputation, RecomputesNeededOutputsThatAreNotKept) {
  const std::vector<StepArrays> chain = chain_of_steps(101, 1000);
  const Recomputation plan = plan_recomputation(chain);
  for (std::size_t i = 0; i + 1 < chain.size(); ++i)
    EXPECT_EQ(plan.is_rerun[i], plan.is_recomputed(i) && !plan.kept[i]) << i;
  EXPECT_FALSE(plan.is_rerun.back());
}

TEST(Recomputation, KeepsASingleStep) {
  const Recomputation plan = plan_recomputation(chain_of_steps(1, 1000));
  EXPECT_THAT(plan.segments, ElementsAre(0));
  EXPECT_THAT(plan.is_rerun, ElementsAre(false));
  EXPECT_TRUE(plan_recomputation({}).segments.empty());
}

TEST(Recomputation, IsUnusedForStepsThatKeepNothing) {
  std::vector<StepArrays> chain = chain_of_steps(40, 1000);
  for (StepArrays& step : chain) step.inputs_in_backward = false;
  EXPECT_THAT(plan_recomputation(chain).segments, Each(0));
}

// Blocks of small arrays around a large one: the boundaries are between the blocks.
TEST(Recomputation, EndsSegmentsWhereLittleIsKept) {
  std::vector<StepArrays> steps = {reads_inputs({}, 10)};
  for (int block = 0; block < 6; ++block) {
    const int input = 3 * block;
    steps.push_back(reads_inputs({input}, 500));
    steps.push_back(reads_inputs({input + 1}, 500));
    steps.push_back(reads_inputs({input + 2}, 10));
  }
  const Recomputation plan = plan_recomputation(steps);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_TRUE(!plan.kept[i] || i % 3 == 0) << i;
  EXPECT_EQ(plan.segments.back(), 5);
}

// An output that many segments read, such as that of an encoder, is kept once.
TEST(Recomputation, KeepsACommonInputOnce) {
  std::vector<StepArrays> steps = {reads_inputs({}, 5000)};
  for (int i = 1; i <= 60; ++i) steps.push_back(reads_inputs({i - 1, 0}, 1000));
  const Recomputation plan = plan_recomputation(steps);
  EXPECT_TRUE(plan.kept[0]);
  EXPECT_GE(plan.segments.back(), 5);
}

TEST(Recomputation, EndsSegmentsOnlyWhereAllowed) {
  std::vector<StepArrays> chain = chain_of_steps(50, 1000);
  for (std::size_t i = 0; i < chain.size(); ++i) chain[i].may_end_segment = i % 7 == 3;
  const Recomputation plan = plan_recomputation(chain);
  ASSERT_GT(plan.segments.back(), 0);
  for (std::size_t i = 0; i + 1 < chain.size(); ++i)
    EXPECT_TRUE(plan.segments[i] == plan.segments[i + 1] || i % 7 == 3) << i;
}

// The mask of a dropout is a saved value: it is written again although the output is kept.
TEST(Recomputation, RewritesSavedValues) {
  std::vector<StepArrays> chain = chain_of_steps(64, 1000);
  for (StepArrays& step : chain) step.saved_bytes = 100;
  const Recomputation plan = plan_recomputation(chain);
  for (std::size_t i = 0; i < chain.size(); ++i)
    EXPECT_EQ(plan.is_rerun[i], plan.is_recomputed(i)) << i;
}

// Two steps of gradient descent on micro-batches of 3 and 2 samples.
struct Descent {
  std::vector<float> gradients;  // sums over all micro-batches
  std::vector<float> parameters;
  std::vector<float> buffers;
  std::vector<double> losses;
  std::size_t activation_bytes = 0;
};

constexpr std::int32_t kRecomputedVocabulary = 11;

class DescentData {
 public:
  DescentData(const Network& network, std::int64_t samples) {
    for (const NetworkInput& input : network.inputs()) {
      const auto count = static_cast<std::size_t>(samples * element_count(input.shape));
      if (input.type == ElementType::int32)
        indices_.push_back(
            labels(count, input.name == "segments" ? 2 : kRecomputedVocabulary, indices_.size()));
      else
        features_ = numbers(count, 5);
    }
    for (const auto& indices : indices_) inputs_.push_back({.indices = indices});
    if (indices_.empty()) inputs_.push_back({.features = features_});
    const Shape& output = network.shape(network.outputs().front().node);
    const std::int64_t rows = output.size() > 1 ? output.front() : 1;
    labels_ = labels(static_cast<std::size_t>(samples * rows),
                     static_cast<std::int32_t>(output.back()), 9);
    batch_ = {.samples = samples, .targets = {.labels = labels_, .values = {}}, .inputs = inputs_};
  }
  const BatchView& batch() const { return batch_; }

 private:
  std::vector<float> features_;
  std::vector<std::vector<std::int32_t>> indices_;
  std::vector<InputView> inputs_;
  std::vector<std::int32_t> labels_;
  BatchView batch_;
};

Descent descent_of(const Network& network, const ComputeOptions& options,
                   const ComputeHooks& hooks = {}) {
  set_thread_budget(1);
  device::HostAllocator allocator;
  CompiledModel model(std::make_shared<const Network>(network), device::Device{}, allocator,
                      options, hooks);
  model.initialize(3);
  Descent result;
  for (std::int64_t step = 0; step < 2; ++step) {
    std::int64_t first = 0;
    for (const std::int64_t samples : {3, 2}) {
      const DescentData data(network, samples);
      const MetricSums sums = model.train_batch(
          data.batch(), {.seed = 7, .step = step, .first_sample = first, .global_samples = 5},
          SparseCategoricalCrossentropy{}, first > 0);
      result.losses.push_back(sums.loss_sum);
      first += samples;
    }
    const std::span<float> gradients = model.gradients();
    result.gradients.insert(result.gradients.end(), gradients.begin(), gradients.end());
    for (std::size_t i = 0; i < gradients.size(); ++i) model.parameters()[i] -= 0.1F * gradients[i];
    model.parameters_changed();
  }
  result.parameters.assign(model.parameters().begin(), model.parameters().end());
  result.buffers.assign(model.buffers().begin(), model.buffers().end());
  result.activation_bytes = model.memory().activations;
  return result;
}

std::vector<zoo::DataInput> tokens_of(std::int64_t length, bool with_segments = false) {
  std::vector<zoo::DataInput> inputs = {
      {{.name = "tokens", .shape = {length}, .type = ElementType::int32}, kRecomputedVocabulary}};
  if (with_segments)
    inputs.push_back({{.name = "segments", .shape = {length}, .type = ElementType::int32}, 2});
  return inputs;
}

// Layers that work in place on the network's input, and an output that others read.
Network in_place_on_the_input() {
  Network network({40});
  network.add(ReLU());
  network.add(Dropout({.rate = 0.3F}));
  for (int i = 0; i < 12; ++i) {
    network.add(Dense({.units = 40}));
    if (i % 2 == 0)
      network.add(ReLU());
    else
      network.add(Sigmoid());
  }
  network.add(Dropout({.rate = 0.3F}));
  network.add(Dense({.units = 5}));
  return network;
}

Network with_aliases() {
  Network network({6, 6, 3});
  for (int i = 0; i < 6; ++i) {
    const NodeId input = network.last();
    network.add(Conv2D({.filters = 3, .kernel = 3, .padding = Padding::same}));
    network.add(ReLU());
    network.add(Reshape({.shape = {36, 3}}));
    network.add(Dropout({.rate = 0.2F}));
    const NodeId residual = network.add(Reshape({.shape = {6, 6, 3}}));
    network.add(Add(), {input, residual});
    network.add(ReLU());
  }
  network.add(Flatten());
  network.add(Dense({.units = 4}));
  return network;
}

Network frozen_in_part() {
  Network network = zoo::resnet18({16, 16, 3}, 5, {.width = 4});
  network.freeze(std::vector<std::string>{"conv1*", "bn1*", "layer1*", "layer3.0*"});
  return network;
}

struct RecomputationCase {
  const char* name;
  Network (*make)();
  double ratio;  // maximum ratio of activation bytes
};
std::ostream& operator<<(std::ostream& out, const RecomputationCase& one) {
  return out << one.name;
}

class RecomputationOf : public ::testing::TestWithParam<RecomputationCase> {};

TEST_P(RecomputationOf, IsBitIdenticalInLessMemory) {
  const Network network = GetParam().make();
  const Descent kept = descent_of(network, {});
  const Descent recomputed = descent_of(network, {.recompute = Recompute::blocks});
  EXPECT_THAT(recomputed.losses, ElementsAreArray(kept.losses));
  EXPECT_TRUE(std::ranges::equal(recomputed.gradients, kept.gradients));
  EXPECT_TRUE(std::ranges::equal(recomputed.parameters, kept.parameters));
  EXPECT_TRUE(std::ranges::equal(recomputed.buffers, kept.buffers)) << "moving statistics";
  EXPECT_LE(static_cast<double>(recomputed.activation_bytes),
            GetParam().ratio * static_cast<double>(kept.activation_bytes))
      << recomputed.activation_bytes << " of " << kept.activation_bytes << " bytes";
}

INSTANTIATE_TEST_SUITE_P(
    Networks, RecomputationOf,
    ::testing::Values(
        RecomputationCase{"gpt", [] { return zoo::make("gpt:8x64", tokens_of(32), 0); }, 0.45},
        RecomputationCase{"gpt_with_dropout",
                          [] { return zoo::make("gpt:4x32,dropout=0.1", tokens_of(16, true), 0); },
                          0.7},
        RecomputationCase{"bert_with_dropout",
                          [] { return zoo::make("bert:4x32,dropout=0.1", tokens_of(16, true), 4); },
                          0.7},
        RecomputationCase{"resnet",
                          [] {
                            return zoo::resnet18({32, 32, 3}, 5, {.width = 8});
                          },
                          0.9},
        RecomputationCase{"mobilenet",
                          [] {
                            return zoo::mobilenet_v2({32, 32, 3}, 5, {.width = 0.25});
                          },
                          0.9},
        RecomputationCase{"frozen_in_part", frozen_in_part, 1.0},
        RecomputationCase{"in_place_on_the_input", in_place_on_the_input, 1.0},
        RecomputationCase{"aliases", with_aliases, 1.0},
        RecomputationCase{"lstm", [] { return zoo::make("lstm:4x16", tokens_of(8), 4); }, 1.0},
        RecomputationCase{"cnn",
                          [] {
                            return zoo::cnn({16, 16, 2}, 10);
                          },
                          1.0}),
    [](const auto& setting) { return std::string(setting.param.name); });

TEST(Recomputation, IsBitIdenticalInBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  const Network network = zoo::make("gpt:4x32,dropout=0.1", tokens_of(16), 0);
  const Descent kept = descent_of(network, {.precision = Precision::bfloat16});
  const Descent recomputed =
      descent_of(network, {.precision = Precision::bfloat16, .recompute = Recompute::blocks});
  EXPECT_TRUE(std::ranges::equal(recomputed.gradients, kept.gradients));
}

// Exchanges statistics in a group of one replica.
class CountedExchange final : public StatisticsExchange {
 public:
  int members() const override { return 1; }
  int member() const override { return 0; }
  void sum(std::span<float> values) override { sizes.push_back(values.size()); }
  std::vector<std::size_t> sizes;
};

TEST(Recomputation, ExchangesSynchronizedStatisticsOnce) {
  const Network network = zoo::resnet18({16, 16, 3}, 5, {.width = 8});
  CountedExchange first;
  CountedExchange second;
  const Descent kept = descent_of(network, {}, {.statistics = &first});
  const Descent recomputed =
      descent_of(network, {.recompute = Recompute::blocks}, {.statistics = &second});
  EXPECT_FALSE(first.sizes.empty());
  EXPECT_THAT(second.sizes, ElementsAreArray(first.sizes)) << "replicas make the same exchanges";
  EXPECT_TRUE(std::ranges::equal(recomputed.gradients, kept.gradients));
  EXPECT_TRUE(std::ranges::equal(recomputed.buffers, kept.buffers));
}

// The identity, which backward reads. Counts calls of forward.
class CountedCalls final : public CustomLayer {
 public:
  struct Counts {
    int first = 0;
    int recomputed = 0;
  };
  explicit CountedCalls(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {}
  std::string kind() const override { return "counted_calls"; }
  Shape build(BuildContext& context) const override { return context.input(); }
  void forward(const Tensors& tensors, const PassContext& pass) const override {
    std::ranges::copy(tensors.inputs[0], tensors.output.begin());
    ++(pass.recomputing ? counts_->recomputed : counts_->first);
  }
  void backward(const Tensors& tensors, const PassContext& pass) const override {
    EXPECT_FALSE(pass.recomputing);
    if (!tensors.input_gradients[0].empty())
      std::ranges::copy(tensors.output_gradient, tensors.input_gradients[0].begin());
  }

 private:
  std::shared_ptr<Counts> counts_;
};

TEST(Recomputation, InformsACustomLayer) {
  const auto counts = std::make_shared<CountedCalls::Counts>();
  Network network({16});
  for (int i = 0; i < 9; ++i) {
    network.add(Dense({.units = 16}));
    network.add(CountedCalls(counts));
  }
  network.add(Dense({.units = 3}));
  descent_of(network, {});
  EXPECT_EQ(counts->recomputed, 0);
  *counts = {};
  descent_of(network, {.recompute = Recompute::blocks});
  constexpr int kPasses = 4;
  EXPECT_EQ(counts->first, 9 * kPasses);
  EXPECT_GT(counts->recomputed, 0);
  EXPECT_THAT(counts->recomputed, Le(9 * kPasses));
}

// A block of a transformer keeps about 16 arrays of the size of its input.
TEST(Recomputation, KeepsOneInputPerBlockOfAGpt) {
  const auto bytes = [](const char* name, Recompute recompute) {
    const Network network = zoo::make(name, tokens_of(64), 0);
    device::HostAllocator allocator;
    CompiledModel model(std::make_shared<const Network>(network), device::Device{}, allocator,
                        {.recompute = recompute});
    model.prepare(4, true);
    return static_cast<double>(model.memory().activations);
  };
  constexpr double kInput = 4 * 64 * 64 * sizeof(float);
  const double kept = bytes("gpt:24x64", Recompute::none) - bytes("gpt:12x64", Recompute::none);
  const double recomputed =
      bytes("gpt:24x64", Recompute::blocks) - bytes("gpt:12x64", Recompute::blocks);
  EXPECT_GT(kept, 12 * 15 * kInput);
  EXPECT_LT(recomputed, 12 * 2 * kInput);
}

}  // namespace
}  // namespace lockstep::inline v0::model
