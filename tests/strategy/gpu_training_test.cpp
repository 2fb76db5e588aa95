// Training on real or simulated GPUs matches training on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/device/gpu.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/tensorboard/summaries.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using device::Device;

constexpr Device kGpu{device::DeviceKind::gpu, 0};

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<StepLogs> steps;
  std::uint64_t hash = 0;
  bool diverged = false;
  std::vector<float> buffers;
  model::MetricSums evaluated;
};

// 20 steps in batches of 40 of 203 samples: the last one of an epoch, the sixth, has 3.
Trained train_on(std::vector<Device> devices, model::Network network, const TrainerOptions& options,
                 const data::Dataset& dataset = small_data(), std::int64_t steps = 20) {
  job::Session session(0, nullptr);
  const auto strategy =
      make_strategy(session, options.local.steps ? "local-steps" : "auto", std::move(devices));
  const auto recorder = std::make_shared<StepRecorder>();
  Trainer trainer(*strategy, std::move(network), options);
  FitOptions fit{.epochs = 0, .steps = steps};
  fit.callbacks.push_back(recorder);
  Trained trained;
  try {
    trained.hash = trainer.fit(dataset.shuffle().batch(40), fit).end.parameter_hash;
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::diverged) throw;
    trained.diverged = true;
  }
  trained.losses = recorder->losses;
  trained.steps = recorder->steps;
  for (const StepLogs& step : recorder->steps) trained.norms.push_back(step.gradient_norm);
  const checkpoint::ReplicaArrays arrays = trainer.replicas().arrays(false);
  trained.buffers.assign(arrays.buffers.begin(), arrays.buffers.end());
  if (!trained.diverged && dataset.spec() == small_data().spec())
    trained.evaluated = trainer.evaluate(small_data(50).batch(16));
  return trained;
}

void expect_close(const std::vector<double>& values, const std::vector<double>& expected,
                  double relative) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], relative * std::abs(expected[i])) << "step " << i;
}

struct Kind {
  std::string name;
  model::Network (*network)();
  TrainerOptions options;

  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

const Kind kKinds[] = {
    {"sgd",
     plain_network,
     {.optimizer = model::Sgd{.weight_decay = 1e-2F}, .schedule = {.peak = 0.1F}}},
    {"momentum_and_dropout",
     dropout_network,
     {.optimizer = model::Sgd{.momentum = 0.9F, .weight_decay = 1e-3F},
      .schedule = {.peak = 0.05F}}},
    {"nesterov",
     plain_network,
     {.optimizer = model::Sgd{.momentum = 0.9F, .nesterov = true}, .schedule = {.peak = 0.05F}}},
    {"adam", plain_network, {.optimizer = model::Adam{}}},
    {"adamw", plain_network, {.optimizer = model::AdamW{}}},
    // Not Adam: the gradient of a bias before a normalization is only rounding errors, which Adam
    // would amplify.
    {"normalization",
     normalized_network,
     {.optimizer = model::Sgd{.momentum = 0.9F}, .schedule = {.peak = 0.02F}}},
    {"lars",
     plain_network,
     {.optimizer = model::Lars{.trust_coefficient = 0.1F}, .schedule = {.peak = 0.1F}}},
    {"lamb", plain_network, {.optimizer = model::Lamb{}, .schedule = {.peak = 0.01F}}},
    {"clipped",
     plain_network,
     {.optimizer = model::Sgd{}, .schedule = {.peak = 0.5F}, .clip_norm = 0.05}},
    {"micro_batches", plain_network, {.optimizer = model::Adam{}, .accumulate = 3}},
};

class GpuTraining : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
  static model::Network network() { return GetParam().network(); }
};

TEST(GpuOutputs, MatchTheLossesOfTheCpu) {
  if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  const Trained on_cpu = train_on({Device{}}, house_network(), house_options(), house_data());
  const Trained on_gpu = train_on({kGpu}, house_network(), house_options(), house_data());
  expect_close(on_gpu.losses, on_cpu.losses, 1e-4);
  EXPECT_LT(on_cpu.losses.back(), on_cpu.losses.front());
}

TEST(GpuMetrics, MatchTheOutputsOfTheGpu) {
  if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  TrainerOptions options{.optimizer = model::Sgd{}, .schedule = {.peak = 0.05F}};
  options.metrics = model::make_metrics("confusion", options.loss, kClasses);
  for (const model::Precision precision : {model::Precision::float32, model::Precision::float16})
    for (const int accumulate : {1, 3}) {
      options.compute.precision = precision;
      options.accumulate = accumulate;
      job::Session session(0, nullptr);
      const auto strategy = make_strategy(session, "auto", {kGpu});
      const Outcome outcome = train(*strategy, plain_network(), small_data().batch(40), options,
                                    {.epochs = 3, .validation = small_data(50).batch(16)});
      for (const EpochLogs& epoch : outcome.history.epochs) {
        const auto right = [](const model::MetricValue& confusion) {
          double count = 0;
          for (std::size_t i = 0; i < kClasses; ++i) count += confusion.values[i * kClasses + i];
          return count;
        };
        EXPECT_EQ(right(epoch.values.front()), static_cast<double>(epoch.metrics.correct));
        EXPECT_EQ(right(epoch.validation_values.front()),
                  static_cast<double>(epoch.validation->correct));
      }
    }
}

TEST_P(GpuTraining, MatchesTheLossesOfTheCpu) {
  const Trained cpu = train_on({Device{}}, network(), GetParam().options);
  const Trained gpu = train_on({kGpu}, network(), GetParam().options);
  expect_close(gpu.losses, cpu.losses, 1e-4);
  expect_close(gpu.norms, cpu.norms, 1e-3);
  EXPECT_NEAR(gpu.evaluated.loss_sum, cpu.evaluated.loss_sum, 1e-3 * cpu.evaluated.loss_sum);
  EXPECT_EQ(gpu.evaluated.samples, 50);
  for (std::size_t i = 0; i < cpu.buffers.size(); ++i)
    EXPECT_NEAR(gpu.buffers[i], cpu.buffers[i], 1e-4) << i;
}

TEST_P(GpuTraining, IsTheSameOnTwoReplicasOfOneGpu) {
  if (network().buffers().element_count() > 0) return;  // statistics are per replica
  const Trained one = train_on({kGpu}, network(), GetParam().options);
  const Trained two = train_on({kGpu, kGpu}, network(), GetParam().options);
  expect_close(two.losses, one.losses, 1e-4);
}

TEST_P(GpuTraining, IsBitwiseEqualWithAndWithoutRecordings) {
  TrainerOptions plainly = GetParam().options;
  plainly.records_steps = false;
  // Two replicas pause for reductions.
  for (const auto& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
    const Trained recorded = train_on(devices, network(), GetParam().options);
    const Trained plain = train_on(devices, network(), plainly);
    EXPECT_EQ(recorded.hash, plain.hash);
    EXPECT_EQ(recorded.losses, plain.losses);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuTraining, testing::ValuesIn(kKinds),
                         [](const auto& test) { return test.param.name; });

class GpuStep : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

// The learning rate makes the loss infinite within the first epoch.
TEST(GpuLocalSteps, MatchThoseOfTheCpu) {
  TrainerOptions options{.optimizer = model::Sgd{.momentum = 0.9F},
                         .schedule = {.peak = 0.05F},
                         .ema = 0.9F,
                         .clip_norm = 0.5,
                         .local = {.outer = kNesterovOuterStep}};
  for (const int steps : {1, 3}) {
    options.local.steps = steps;
    const Trained cpu = train_on({Device{}, Device{}}, normalized_network(), options);
    const Trained gpu = train_on({kGpu, kGpu}, normalized_network(), options);
    expect_close(gpu.losses, cpu.losses, 1e-4);
    EXPECT_NEAR(gpu.evaluated.loss_sum, cpu.evaluated.loss_sum, 1e-3 * cpu.evaluated.loss_sum);
    TrainerOptions narrow = options;
    narrow.compute.precision = model::Precision::bfloat16;
    const Trained rounded = train_on({kGpu, kGpu}, normalized_network(), narrow);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(rounded.losses[i], cpu.losses[i], 0.1) << i;
  }
}

TEST_F(GpuStep, IsSkippedIfTheLossIsNotFinite) {
  const TrainerOptions wild{.optimizer = model::Sgd{}, .schedule = {.peak = 1e30F}};
  const Trained gpu = train_on({kGpu}, normalized_network(), wild, small_data(), 6);
  const Trained cpu = train_on({Device{}}, normalized_network(), wild, small_data(), 6);
  const auto skipped = [](const Trained& trained) {
    return std::ranges::count_if(trained.steps, [](const StepLogs& step) { return step.skipped; });
  };
  EXPECT_GT(skipped(gpu), 0);
  EXPECT_EQ(skipped(gpu), skipped(cpu));
  EXPECT_TRUE(gpu.diverged && cpu.diverged);
  for (const float value : gpu.buffers)
    EXPECT_TRUE(std::isfinite(value)) << "a skipped step leaves its statistics";
}

TEST_F(GpuStep, ScalesTheLossOfFloat16) {
  TrainerOptions options{.optimizer = model::Adam{},
                         .compute = {.precision = model::Precision::float16}};
  options.loss_scaling = kDynamicLossScaling;
  const Trained half = train_on({kGpu}, plain_network(), options);
  const Trained full = train_on({Device{}}, plain_network(), {.optimizer = model::Adam{}});
  EXPECT_NEAR(half.losses.back(), full.losses.back(), 0.02 * full.losses.back());
  const Trained two = train_on({kGpu, kGpu}, plain_network(), options);
  expect_close(two.losses, half.losses, 0.02);
}

// In the last batch of an epoch, of 3, one of the replicas has no sample.
TEST_F(GpuStep, NormalizesOverTheSamplesOfAllReplicas) {
  TrainerOptions options{.optimizer = model::Sgd{.momentum = 0.9F}, .schedule = {.peak = 0.02F}};
  const Trained one = train_on({Device{}}, normalized_network(), options);
  options.normalization = {.kind = NormalizationScope::Kind::sync};
  const Trained four = train_on({kGpu, kGpu, kGpu, kGpu}, normalized_network(), options);
  expect_close(four.losses, one.losses, 1e-4);
  for (std::size_t i = 0; i < one.buffers.size(); ++i)
    EXPECT_NEAR(four.buffers[i], one.buffers[i], 1e-4) << i;
}

/// The samples of small_data() as images of uint8.
class PixelSource final : public data::RecordSource {
 public:
  PixelSource() {
    info_ = source_.source().info();
    info_.has_images = true;
  }
  void read(std::int64_t id, data::Sample& sample) const override {
    data::Batch one(spec());
    data::Sample original = one.sample();
    source_.source().read(id, original);
    std::array<std::uint8_t, 16> pixels = {};
    features_to_pixels(original.features(), pixels);
    sample.set_image(pixels);
    sample.label() = original.label();
  }

 private:
  data::Dataset source_ = small_data();
};

// In 16 bits, with a changing loss scale, and with images that are copied during the previous step.
TEST_F(GpuStep, IsBitwiseEqualRecordedAndNotInEveryPrecision) {
  const data::Dataset images = data::Dataset::from_source(std::make_shared<PixelSource>());
  for (const auto precision :
       {model::Precision::float32, model::Precision::bfloat16, model::Precision::float16}) {
    TrainerOptions options{.optimizer = model::Adam{}, .compute = {.precision = precision}};
    if (precision == model::Precision::float16) options.loss_scaling = kDynamicLossScaling;
    TrainerOptions plainly = options;
    plainly.records_steps = false;
    for (const data::Dataset& dataset : {small_data(), images})
      for (const auto& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
        const Trained recorded = train_on(devices, dropout_network(), options, dataset);
        const Trained plain = train_on(devices, dropout_network(), plainly, dataset);
        EXPECT_EQ(recorded.hash, plain.hash) << to_string(precision);
        EXPECT_EQ(recorded.losses, plain.losses) << to_string(precision);
        EXPECT_EQ(recorded.norms, plain.norms) << to_string(precision);
        EXPECT_EQ(recorded.evaluated.loss_sum, plain.evaluated.loss_sum) << to_string(precision);
      }
  }
}

TEST_F(GpuStep, RecomputesActivationsInRecordings) {
  model::Network network({16}, "deep");
  for (int block = 0; block < 6; ++block) {
    network.add(model::Dense({.units = 16}));
    network.add(model::GELU());
    network.add(model::Dropout({.rate = 0.3F}));
  }
  network.add(model::Dense({.units = kClasses}));
  TrainerOptions options{.optimizer = model::Adam{}, .compute = {.deterministic = true}};
  for (const auto& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
    options.compute.recompute = model::Recompute::none;
    const Trained kept = train_on(devices, network, options);
    options.compute.recompute = model::Recompute::blocks;
    const Trained again = train_on(devices, network, options);
    EXPECT_EQ(again.hash, kept.hash);
    EXPECT_EQ(again.losses, kept.losses);
  }
}

TEST_F(GpuStep, HasABreakdownRecordedAndNot) {
  for (const bool records : {true, false})
    for (const std::size_t replicas : {1, 2}) {
      const Trained trained = train_on(std::vector<Device>(replicas, kGpu), plain_network(),
                                       {.records_steps = records});
      ASSERT_EQ(trained.steps.size(), 20U);
      for (const StepLogs& logs : trained.steps) {
        EXPECT_GT(logs.breakdown.compute, 0) << "step " << logs.step;
        EXPECT_GT(logs.breakdown.update, 0) << "step " << logs.step;
        EXPECT_GE(logs.breakdown.communication, 0) << "step " << logs.step;
        EXPECT_GE(logs.breakdown.waiting, 0) << "step " << logs.step;
        EXPECT_LT(logs.breakdown.total(), 100) << "step " << logs.step;
      }
    }
}

// Batches that are read in time are copied to the GPU during the previous step; a validation
// separates two of them.
TEST_F(GpuStep, AcceptsImagesAsPixels) {
  const data::Dataset images = data::Dataset::from_source(std::make_shared<PixelSource>());
  const auto run = [&](std::vector<Device> devices, int accumulate) {
    job::Session session(0, nullptr);
    const auto strategy = make_strategy(session, "auto", std::move(devices));
    FitOptions fit{.epochs = 4, .validation = images.batch(64)};
    return train(*strategy, plain_network(), images.shuffle().batch(40),
                 {.optimizer = model::Adam{}, .accumulate = accumulate}, std::move(fit));
  };
  for (const int accumulate : {1, 3}) {
    const Outcome cpu = run({Device{}}, accumulate);
    EXPECT_LT(cpu.losses.back(), 0.95 * cpu.losses.front());
    for (const auto& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu, kGpu}}) {
      const Outcome gpu = run(devices, accumulate);
      expect_close(gpu.losses, cpu.losses, 1e-4);
      EXPECT_NEAR(gpu.history.epochs.back().validation->loss_sum,
                  cpu.history.epochs.back().validation->loss_sum,
                  1e-3 * cpu.history.epochs.back().validation->loss_sum);
    }
  }
}

// The steps between are recorded and replayed; the bits are those of a training that is not timed.
TEST_F(GpuStep, IsTimedLayerByLayer) {
  const checkpoint::ScratchDirectory directory;
  const TrainerOptions options{.optimizer = model::Sgd{.momentum = 0.9F}};
  for (const auto& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
    const auto run = [&](const std::filesystem::path& profile) {
      job::Session session(0, nullptr);
      const auto strategy = make_strategy(session, "auto", devices);
      FitOptions fit{.epochs = 0, .steps = 20};
      fit.profile = profile;
      return train(*strategy, normalized_network(), shuffled_data(), options, std::move(fit));
    };
    const Outcome timed = run(directory.path() / "profile.jsonl");
    EXPECT_EQ(timed.parameter_hash, run({}).parameter_hash);
    ASSERT_TRUE(timed.history.end.profile.has_value());
    const model::Profile& profile = *timed.history.end.profile;
    EXPECT_EQ(profile.steps, 12) << "full batches behind the first 5 steps";
    std::vector<std::string> names;
    for (const model::ProfiledPiece& piece : profile.pieces) {
      names.push_back(piece.name);
      EXPECT_GT(piece.milliseconds, 0) << piece.name;
    }
    EXPECT_THAT(names, testing::ElementsAre(
                           "input", "dense forward", "batch_normalization statistics",
                           "batch_normalization forward", "dense_1 forward", "loss",
                           "dense_1 weight gradient", "dense_1 data gradient",
                           "batch_normalization gradient sums", "batch_normalization backward",
                           "dense weight gradient", "reduction", "update"));
    EXPECT_GT(profile.speed.bytes_per_second, 0);
    EXPECT_GT(profile.speed.flop_per_second, 0);
  }
}

/// Counts the correct predictions of each validation.
class RightPredictions final : public Callback {
 public:
  void on_predictions(const ImagePredictions& predictions) override {
    counts.push_back(std::ranges::count_if(
        predictions.predictions, [](const auto& one) { return one.label == one.predicted; }));
  }
  std::vector<std::int64_t> counts;
};

// Histograms copy the parameters and gradients to the host between recorded steps, and images are
// predicted in a separate batch.
TEST_F(GpuStep, IsObservedForTensorBoardWithoutChangingIt) {
  const checkpoint::ScratchDirectory directory;
  const auto images = [](std::int64_t records) {
    return data::Dataset::synthetic({8, 8, 1}, kClasses, records);
  };
  for (const auto& devices : {std::vector{kGpu}, std::vector{kGpu, kGpu}}) {
    const auto run = [&](FitOptions fit) {
      job::Session session(0, nullptr);
      const auto strategy = make_strategy(session, "auto", devices);
      fit.epochs = 2;
      fit.validation = images(30).batch(40);
      return train(*strategy, zoo::mlp({8, 8, 1}, kClasses), images(100).shuffle().batch(40),
                   {.optimizer = model::Adam{}}, std::move(fit));
    };
    const auto right = std::make_shared<RightPredictions>();
    FitOptions observed{.prediction_images = 30};
    observed.callbacks = {std::make_shared<Summaries>(directory.path(), 1, "", nullptr,
                                                      SummaryOptions{.histogram_every = 1}),
                          right};
    const Outcome outcome = run(std::move(observed));
    EXPECT_EQ(outcome.parameter_hash, run({}).parameter_hash);
    ASSERT_EQ(right->counts.size(), 2U);
    for (std::size_t epoch = 0; epoch < right->counts.size(); ++epoch)
      EXPECT_EQ(right->counts[epoch], outcome.history.epochs[epoch].validation->correct);
  }
}

TEST_F(GpuStep, TrainsImagesInBfloat16) {
  job::Session session(0, nullptr);
  const auto run = [&](Device device, model::Precision precision) {
    const auto strategy = make_strategy(session, "auto", {device});
    const auto recorder = std::make_shared<StepRecorder>();
    Trainer trainer(*strategy, zoo::cnn({12, 12, 1}, 4),
                    {.optimizer = model::Adam{}, .compute = {.precision = precision}});
    FitOptions fit{.epochs = 0, .steps = 8};
    fit.callbacks.push_back(recorder);
    trainer.fit(data::Dataset::synthetic({12, 12, 1}, 4, 64).batch(16), fit);
    return recorder->losses;
  };
  const auto reference = run(Device{}, model::Precision::float32);
  expect_close(run(kGpu, model::Precision::float32), reference, 1e-3);
  expect_close(run(kGpu, model::Precision::bfloat16), reference, 0.1);
}

}  // namespace
}  // namespace lockstep::inline v0::train
