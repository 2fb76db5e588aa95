// A GPU accepts inputs, targets and weights of every kind, as the CPU does. Runs on gpu:0,
// simulated or real.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/device/gpu.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/sides.h"

namespace lockstep::inline v0::model {
namespace {

using device::Device;

class GpuInput : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
    network_->add(Flatten());
    network_->add(Dense({.units = 5}));
  }

  /// Images whose pixels are all values in turn.
  static BatchView images(std::int64_t samples, std::size_t first) {
    static const std::vector<std::uint8_t> pixels = [] {
      std::vector<std::uint8_t> values(1024);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
      return values;
    }();
    static const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1};
    const auto count = static_cast<std::size_t>(samples);
    return {.samples = samples,
            .pixels = std::span(pixels).subspan(first, count * 21),
            .normalization = {.channels = 3,
                              .mean = {0.1f, 0.2f, 0.3f},
                              .deviation = {0.3f, 0.2f, 0.1f}},
            .targets = {.labels = std::span(labels).first(count)}};
  }
  static StepContext context(const BatchView& batch) { return {.global_samples = batch.samples}; }
  static Values train(Side& side, const BatchView& batch) {
    side.model().train_batch(batch, context(batch), kLoss);
    return side.gradients();
  }
  static Values train_staged(Side& side, const BatchView& batch) {
    side.model().load(batch, context(batch), kLoss, true);
    side.model().train_loaded(batch.samples, context(batch), kLoss);
    return side.gradients();
  }

  std::shared_ptr<Network> network_ = std::make_shared<Network>(Shape{1, 7, 3});
};

TEST_P(GpuInput, ConvertsPixelsToFeatures) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  for (const std::int64_t samples : {1, 3, 12}) {
    const BatchView pixels = images(samples, 3);
    std::vector<float> features(pixels.pixels.size());
    pixels_to_features(pixels.pixels, pixels.normalization, features);
    const BatchView converted{.samples = samples, .features = features, .targets = pixels.targets};
    EXPECT_EQ(train(gpu, pixels), train(gpu, converted)) << samples;
    const auto predicted = gpu.model().predict_batch(pixels);
    const Values pixel_outputs(predicted.begin(), predicted.end());
    const auto expected = gpu.model().predict_batch(samples, features);
    EXPECT_EQ(pixel_outputs, Values(expected.begin(), expected.end())) << samples;
  }
}

TEST_P(GpuInput, StagesTheSameBatch) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  std::vector<BatchView> batches;
  for (const std::int64_t samples : {2, 12, 3, 3, 7})
    batches.push_back(images(samples, batches.size() * 5));
  std::vector<Values> expected;
  for (const BatchView& batch : batches) expected.push_back(train(gpu, batch));
  const BatchView other = images(12, 100);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    gpu.model().stage(batches[i]);
    // Batches in between use other memory, also twice.
    for (std::size_t between = 0; between < i % 3; ++between)
      gpu.model().evaluate_batch(other, kLoss);
    EXPECT_EQ(train_staged(gpu, batches[i]), expected[i]) << i;
  }
  gpu.model().stage(other);  // never used
  gpu.model().stage(batches[0]);
  EXPECT_EQ(train_staged(gpu, batches[0]), expected[0]);
}

/// Alternates, since a GPU keeps state of the previous batch.
TEST_P(GpuInput, MixedSamplesHaveTheGradientsOfTheCpu) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  Side cpu(Device{}, network_, {});
  const std::vector<std::int32_t> partners = {4, 1, 0, 0, 2, 3, 3, 1, 2, 0, 4, 4};
  const std::vector<float> weights = {0.5f, 0.25f, 0,    1,    0.875f, 0.1f,
                                      0.9f, 0.5f,  0.5f, 0.3f, 0.7f,   0.2f};
  for (const bool mixed : {true, false, true})
    for (const std::int64_t samples : {12, 3}) {
      BatchView batch = images(samples, 3);
      const auto count = static_cast<std::size_t>(samples);
      if (mixed) batch.targets.partner_labels = std::span(partners).first(count);
      if (mixed) batch.targets.weights = std::span(weights).first(count);
      const Values expected = train(cpu, batch);
      EXPECT_LT(error(train(gpu, batch), expected), GetParam() == Precision::float32 ? 1e-5 : 2e-2)
          << mixed;
      const MetricSums gpu_sums = gpu.model().train_batch(batch, context(batch), kLoss);
      const MetricSums cpu_sums = cpu.model().train_batch(batch, context(batch), kLoss);
      EXPECT_NEAR(gpu_sums.loss_sum, cpu_sums.loss_sum, 1e-2 * cpu_sums.loss_sum);
      gpu.model().stage(batch);
      EXPECT_EQ(train_staged(gpu, batch), train(gpu, batch)) << mixed;
    }
}

/// Alternates between batches with and without sample weights.
TEST_P(GpuInput, TargetsAndWeightsHaveTheLossOfTheCpu) {
  const bool is_exact = GetParam() == Precision::float32;
  const std::vector<float> weights = {0.5f, 2, 0, 1, 3, 0, 0, 0.25f, 1, 1, 2, 0.5f};
  std::vector<float> values = numbers(60, 6);
  std::vector<float> wide_values = numbers(12 * 601, 6);
  for (std::vector<float>* all : {&values, &wide_values})
    for (float& value : *all) value = (value + 1) / 2;
  auto wide = std::make_shared<Network>(*network_);
  wide->add(Dense({.units = 601}));
  auto one_output = std::make_shared<Network>(Shape{1, 7, 3});
  one_output->add(Flatten());
  one_output->add(Dense({.units = 1}));
  const std::vector<std::int32_t> two_classes = {0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0};
  struct Kind {
    Loss loss;
    std::shared_ptr<const Network> network;
    Targets targets;
  };
  std::vector<Kind> kinds;
  for (const std::string_view name : loss_names())
    if (is_exact || name != MeanAbsoluteError::kName)  // a sign depends on the last bit
      kinds.push_back({parse_loss(name), network_, {.values = values}});
  kinds.front().targets = images(12, 3).targets;
  kinds.push_back({CategoricalCrossentropy{0.1f}, network_, {.values = values}});
  kinds.push_back({kLoss, wide, images(12, 3).targets});
  kinds.push_back({CategoricalCrossentropy{0.1f}, wide, {.values = wide_values}});
  kinds.push_back({MeanSquaredError{}, wide, {.values = wide_values}});
  kinds.push_back({BinaryCrossentropy{0.1f}, one_output, {.labels = two_classes}});
  for (const auto& [loss, network, targets] : kinds) {
    SCOPED_TRACE(to_string(loss));
    Side gpu(kGpu, network, {.precision = GetParam()});
    Side cpu(Device{}, network, {});
    BatchView batch = images(12, 3);
    batch.targets = targets;
    for (const bool weighted : {false, true, false}) {
      batch.targets.sample_weights =
          weighted ? std::span<const float>(weights) : decltype(batch.targets.sample_weights)();
      const MetricSums gpu_sums = gpu.model().train_batch(batch, context(batch), loss);
      const MetricSums cpu_sums = cpu.model().train_batch(batch, context(batch), loss);
      EXPECT_NEAR(gpu_sums.loss_sum, cpu_sums.loss_sum,
                  (is_exact ? 1e-5 : 2e-2) * cpu_sums.loss_sum);
      EXPECT_EQ(gpu_sums.weight_sum(), weighted ? 11.25 : 12);
      EXPECT_EQ(gpu_sums.has_accuracy(), cpu_sums.has_accuracy());
      if (is_exact) {
        EXPECT_EQ(gpu_sums.correct, cpu_sums.correct);
      }
      EXPECT_LT(error(gpu.gradients(), cpu.gradients()), is_exact ? 1e-5 : 2e-2);
    }
  }
}

/// Alternates between masked and unmasked labels, without weights, with sample weights and with
/// label weights.
TEST_P(GpuInput, LabelsAtPositionsHaveTheLossOfTheCpu) {
  const bool is_exact = GetParam() == Precision::float32;
  const auto network = std::make_shared<Network>(Shape{7, 3});
  network->add(Conv1D({.filters = 5, .kernel = 1}));
  const std::vector<float> features = numbers(84, 3);  // 4 samples
  const std::vector<std::int32_t> all = labels(28, 5, 4);
  std::vector<std::int32_t> masked = all;
  for (const std::size_t at : {0U, 5U, 6U, 14U, 15U, 16U, 17U, 18U, 19U, 20U, 27U})
    masked[at] = kMasked;
  const std::vector<float> sample_weights = {0.5f, 2, 1, 0};
  std::vector<float> label_weights = numbers(28, 5);
  for (float& weight : label_weights) weight = (weight + 1) / 2;
  Side gpu(kGpu, network, {.precision = GetParam()});
  Side cpu(Device{}, network, {});
  for (const Loss& loss : {kLoss, Loss(SparseCategoricalCrossentropy{0.1f})})
    for (const bool is_masked : {false, true, false})
      for (const std::vector<float>& weights :
           {std::vector<float>(), sample_weights, label_weights}) {
        const BatchView batch{
            .samples = 4,
            .features = features,
            .targets = {.labels = is_masked ? masked : all, .sample_weights = weights}};
        const MetricSums gpu_sums = gpu.model().train_batch(batch, context(batch), loss);
        const MetricSums cpu_sums = cpu.model().train_batch(batch, context(batch), loss);
        EXPECT_NEAR(gpu_sums.loss_sum, cpu_sums.loss_sum,
                    (is_exact ? 1e-5 : 2e-2) * cpu_sums.loss_sum);
        EXPECT_EQ(gpu_sums.samples, 4);
        EXPECT_EQ(gpu_sums.more_positions, 24);
        EXPECT_EQ(gpu_sums.masked, is_masked ? 11 : 0);
        EXPECT_NEAR(gpu_sums.weight_sum(), cpu_sums.weight_sum(), 1e-12);
        if (is_exact) {
          EXPECT_EQ(gpu_sums.correct, cpu_sums.correct);
          EXPECT_EQ(gpu_sums.correct_top5, cpu_sums.correct_top5);
        }
        EXPECT_LT(error(gpu.gradients(), cpu.gradients()), is_exact ? 1e-5 : 2e-2);
      }
}

/// Logits in blocks of rows: two of 64, and one of 26.
TEST_P(GpuInput, LogitsInBlocksHaveTheLossOfTheCpu) {
  const bool is_exact = GetParam() == Precision::float32;
  const std::vector<std::int32_t> all = labels(154, 5, 4);
  std::vector<std::int32_t> masked = all;
  for (const std::size_t at : {0U, 63U, 64U, 65U, 128U, 153U}) masked[at] = kMasked;
  std::vector<float> sample_weights = numbers(22, 6);
  std::vector<float> label_weights = numbers(154, 5);
  for (std::vector<float>* weights : {&sample_weights, &label_weights})
    for (float& weight : *weights) weight = std::max(weight, 0.0f);
  struct Head {
    bool tied;
    std::int64_t words;
  };
  for (const auto& [tied, words_known] : {Head{false, 5}, Head{true, 5}, Head{true, 601}}) {
    SCOPED_TRACE(words_known);
    Network network({{.name = "words", .shape = {7}, .type = ElementType::int32}});
    network.add(Embedding({.vocabulary = words_known, .dimension = 8}));
    network.add(Dense({.units = 8}));
    network.add(Tanh());
    if (tied)
      network.add(TiedDense({.to = "embedding"}));
    else
      network.add(Dense({.units = words_known}));
    const auto shared = std::make_shared<const Network>(std::move(network));
    Side gpu(kGpu, shared, {.precision = GetParam(), .logits_bytes = 1});
    Side cpu(Device{}, shared, {});
    const std::vector<std::int32_t> words = labels(154, 5, 3);
    for (const Loss& loss : {kLoss, Loss(SparseCategoricalCrossentropy{0.1f})})
      for (const std::vector<float>& weights :
           {std::vector<float>(), sample_weights, label_weights}) {
        const BatchView batch{.samples = 22,
                              .indices = words,
                              .targets = {.labels = masked, .sample_weights = weights}};
        const StepContext scaled{.global_samples = 25, .loss_scale = 16};
        const MetricSums gpu_sums = gpu.model().train_batch(batch, scaled, loss);
        const MetricSums cpu_sums = cpu.model().train_batch(batch, scaled, loss);
        EXPECT_NEAR(gpu_sums.loss_sum, cpu_sums.loss_sum,
                    (is_exact ? 1e-5 : 2e-2) * cpu_sums.loss_sum);
        EXPECT_EQ(gpu_sums.samples, 22);
        EXPECT_EQ(gpu_sums.more_positions, 132);
        EXPECT_EQ(gpu_sums.masked, 6);
        EXPECT_NEAR(gpu_sums.weight_sum(), cpu_sums.weight_sum(), 1e-12);
        if (is_exact) {
          EXPECT_EQ(gpu_sums.correct, cpu_sums.correct);
        }
        EXPECT_LT(error(gpu.gradients(), cpu.gradients()), is_exact ? 1e-5 : 3e-2);
      }
  }
}

/// A term with several positions and one with a single position: each is a separate mean.
TEST_P(GpuInput, PositionsAndSamplesHaveTheGradientsOfTheCpu) {
  const auto network = std::make_shared<Network>(Shape{7, 3});
  const NodeId rows = network->add(Conv1D({.filters = 5, .kernel = 1}));
  network->output("rows", rows);
  network->add(Flatten());
  network->output("whole", network->add(Dense({.units = 4})));
  const std::vector<float> features = numbers(63, 3);  // 3 samples
  std::vector<std::int32_t> at_positions = labels(21, 5, 4);
  at_positions[3] = at_positions[20] = kMasked;
  const std::vector<std::int32_t> sample_labels = {2, 0, 3};
  for (const bool rows_first : {true, false}) {
    const LossTerm row_term{.loss = kLoss, .output = 0, .weight = 0.5f};
    const LossTerm sample_term{.loss = kLoss, .output = 1, .weight = 2};
    const TotalLoss loss(rows_first ? std::vector{row_term, sample_term}
                                    : std::vector{sample_term, row_term});
    const Targets more = {.labels = rows_first ? sample_labels : at_positions};
    const BatchView batch{.samples = 3,
                          .features = features,
                          .targets = {.labels = rows_first ? at_positions : sample_labels},
                          .more_targets = std::span(&more, 1)};
    Side gpu(kGpu, network, {.precision = GetParam()});
    Side cpu(Device{}, network, {});
    const MetricSums gpu_sums = gpu.model().train_batch(batch, context(batch), loss);
    const MetricSums cpu_sums = cpu.model().train_batch(batch, context(batch), loss);
    const double tolerance = GetParam() == Precision::float32 ? 1e-5 : 2e-2;
    EXPECT_NEAR(gpu_sums.loss_sum, cpu_sums.loss_sum, tolerance * cpu_sums.loss_sum);
    EXPECT_EQ(gpu_sums.positions(), rows_first ? 19 : 3);
    EXPECT_LT(error(gpu.gradients(), cpu.gradients()), tolerance);
  }
}

/// A recording for samples of one kind must not be replayed for the other.
TEST_P(GpuInput, ChangesThePlacementForAnotherKind) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  const BatchView plain = images(3, 3);
  BatchView mixed = plain;
  const std::vector<std::int32_t> partners = {4, 1, 0};
  const std::vector<float> weights = {0.5f, 0.25f, 0};
  mixed.targets.partner_labels = partners;
  mixed.targets.weights = weights;
  train(gpu, mixed);  // allocates the memory
  train(gpu, plain);
  const std::uint64_t plain_placement = gpu.model().placement();
  train(gpu, plain);
  EXPECT_EQ(gpu.model().placement(), plain_placement);
  train(gpu, mixed);
  std::uint64_t mixed_placement = gpu.model().placement();
  EXPECT_NE(mixed_placement, plain_placement);
  BatchView weighted = mixed;
  weighted.targets.sample_weights = weights;
  train(gpu, weighted);
  EXPECT_NE(gpu.model().placement(), mixed_placement);
  train(gpu, mixed);
  mixed_placement = gpu.model().placement();
  gpu.model().evaluate_batch(plain, kLoss);  // between epochs
  train(gpu, mixed);
  EXPECT_EQ(gpu.model().placement(), mixed_placement);
}

INSTANTIATE_TEST_SUITE_P(Types, GpuInput,
                         testing::Values(Precision::float32, Precision::bfloat16,
                                         Precision::float16),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace lockstep::inline v0::model
