// A gradient or a loss that is not finite does not change a model, with every optimizer and on
// every device. Finite ones change it as on the CPU.
#include "lockstep/model/optimizer/updater.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/float16.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/loss/loss.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/reference_devices.h"

namespace lockstep::inline v0::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
using Report = std::array<float, SummableMetrics::kSize>;

Report report_of(const MetricSums& sums) {
  Report report{};
  SummableMetrics(sums).write(report.data());
  return report;
}

/// Three parameters without layers, the last one with a separate rate and decay. Their length is no
/// multiple of a vector.
class UpdaterTrial {
 public:
  /// With `narrow`, a copy of the parameters in bfloat16 follows them.
  UpdaterTrial(device::DeviceKind kind, const OptimizerOptions& options, std::int64_t size = 777,
               bool narrow = false)
      : backend_(make_backend(device::Device{kind, 0})),
        table_({{.name = "a", .shape = {size}, .decay = true, .initializer = {}},
                {.name = "b", .shape = {130}, .decay = false, .initializer = {}},
                {.name = "c",
                 .shape = {50},
                 .initializer = {},
                 .rate_factor = 0.5F,
                 .weight_decay = 0.25F}}),
        parameters_(filled(1.5F)),
        gradients_(filled(0.25F)),
        statistics_(backend_->allocator().allocate(5 * sizeof(float))),
        kept_(backend_->allocator().allocate(5 * sizeof(float))),
        report_(backend_->allocator().allocate(sizeof(Report))),
        weights_(narrow ? backend_->allocator().allocate(table_.flat_size() * sizeof(BFloat16))
                        : device::Buffer()),
        updater_(backend_->updater(
            options, table_,
            {.parameters = parameters_.as<float>(),
             .gradients = gradients_.as<float>(),
             .weights = narrow
                            ? TensorView(weights_.data(), table_.flat_size(), Precision::bfloat16)
                            : TensorView(),
             .statistics = statistics_.as<float>(),
             .kept_statistics = kept_.as<float>(),
             .average_decay = 0.5F})) {
    write(kept_, std::array{1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
  }

  const ParameterTable& table() const { return table_; }

  /// Sets parameters and gradients to numbers that differ from element to element.
  void randomize() {
    for (auto* const array : {&parameters_, &gradients_}) {
      device::HostView view(array->as<float>(), backend_->stream());
      for (const ParameterInfo& entry : table_.entries())
        std::ranges::copy(numbers(entry.count, 1 + entry.offset),
                          ParameterTable::slice(view.values(), entry).begin());
      view.write_back(backend_->stream());
    }
  }

  /// An update with `value` at position `place` of the gradient, after a step that changed the
  /// statistics.
  bool update(std::size_t place, float value, const Report& report, double clip_norm) {
    device::HostView gradients(gradients_.as<float>(), backend_->stream());
    const float before = std::exchange(gradients.values()[place], value);
    gradients.write_back(backend_->stream());
    write(statistics_, std::array{9.0F, 9.0F, 9.0F, 9.0F, 9.0F});
    write(report_, report);
    updater_->begin({.learning_rate = 0.1F, .update = 2, .clip_norm = clip_norm});
    updater_->update(report_.as<float>());
    backend_->stream().synchronize();
    const bool applied = updater_->outcome().applied;
    gradients.values()[place] = before;
    gradients.write_back(backend_->stream());
    return applied;
  }

  /// Parameters, slots, statistics and the narrow copy.
  std::vector<float> state() {
    std::vector<float> all = values(parameters_.as<float>());
    for (const std::string& slot : updater_->slot_names())
      std::ranges::copy(values(updater_->slot(slot)), std::back_inserter(all));
    std::ranges::copy(values(statistics_.as<float>()), std::back_inserter(all));
    std::vector<BFloat16> narrow(weights_.size() / sizeof(BFloat16));
    if (narrow.empty()) return all;
    device::copy(narrow.data(), weights_.data(), weights_.size(), backend_->stream());
    backend_->stream().synchronize();
    all.resize(all.size() + narrow.size());
    widen(narrow, std::span(all).last(narrow.size()));
    return all;
  }

 private:
  device::Buffer filled(float value) {
    device::Buffer buffer = backend_->allocator().allocate(table_.flat_size() * sizeof(float));
    device::HostView view(buffer.as<float>(), backend_->stream());
    std::ranges::fill(view.values(), 0.0F);  // padding
    for (const ParameterInfo& entry : table_.entries())
      std::ranges::fill(ParameterTable::slice(view.values(), entry), value);
    view.write_back(backend_->stream());
    return buffer;
  }
  void write(device::Buffer& buffer, std::span<const float> from) {
    device::HostView view(buffer.as<float>(), backend_->stream());
    std::ranges::copy(from, view.values().begin());
    view.write_back(backend_->stream());
  }
  std::vector<float> values(std::span<float> array) {
    device::HostView view(array, backend_->stream());
    return {view.values().begin(), view.values().end()};
  }

  std::unique_ptr<Backend> backend_;
  ParameterTable table_;
  device::Buffer parameters_;
  device::Buffer gradients_;
  device::Buffer statistics_;
  device::Buffer kept_;
  device::Buffer report_;
  device::Buffer weights_;
  std::unique_ptr<Updater> updater_;
};

class UpdaterOn : public ::testing::TestWithParam<device::DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == device::DeviceKind::gpu && !device::gpu_is_available())
      GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

std::vector<OptimizerOptions> trial_optimizers() {
  std::vector<OptimizerOptions> options = all_optimizers();
  options.push_back(Sgd{.momentum = 0.9F});
  options.push_back(Sgd{.momentum = 0.9F, .nesterov = true});
  options.push_back(RmsProp{.momentum = 0.9F});
  return options;
}
const Report kGood = report_of({.loss_sum = 2, .samples = 4});

/// The gradient is over the number of samples, the mean over the sum of weights.
TEST_P(UpdaterOn, MultipliesTheGradientBySamplesOverWeights) {
  for (const auto& [excess, clip_norm, step] :
       {std::tuple(4.0, 0.0, 0.0125F), std::tuple(-2.0, 0.0, 0.05F),
        std::tuple(4.0, 1e3, 0.0125F)}) {
    UpdaterTrial trial(GetParam(), Sgd{});
    EXPECT_TRUE(trial.update(
        0, 0.25F, report_of({.loss_sum = 2, .samples = 4, .weight_excess = excess}), clip_norm));
    EXPECT_FLOAT_EQ(trial.state()[0], 1.5F - step) << excess;
  }
}

/// Also not by momentum or decay.
TEST_P(UpdaterOn, ChangesNothingIfAllWeightsAre0) {
  for (const OptimizerOptions& options :
       {OptimizerOptions(Sgd{.momentum = 0.9F, .weight_decay = 0.1F}), OptimizerOptions(AdamW{})})
    for (const double clip_norm : {0.0, 1.0}) {
      UpdaterTrial trial(GetParam(), options);
      EXPECT_TRUE(trial.update(0, 0.25F, kGood, clip_norm));
      trial.update(0, kNan, kGood, clip_norm);  // skipped: leaves the kept statistics
      const std::vector<float> before = trial.state();
      const Report weightless = report_of({.samples = 4, .weight_excess = -4});
      EXPECT_FALSE(trial.update(0, 0.25F, weightless, clip_norm));
      EXPECT_EQ(trial.state(), before) << to_string(options);
    }
}

/// The sum of the weights, or samples / weights, is infinite.
TEST_P(UpdaterOn, SkipsWeightsWithoutAFiniteFactor) {
  for (const float weights : {kInfinity, 1e-39F}) {
    UpdaterTrial trial(GetParam(), Sgd{});
    Report report = kGood;
    report[5] = weights;
    const std::vector<float> parameters = trial.state();
    EXPECT_FALSE(trial.update(0, 0.25F, report, 0)) << weights;
    EXPECT_EQ(trial.state()[0], parameters[0]);
  }
}

TEST_P(UpdaterOn, SkipsNonFiniteGradientsAtAnyPosition) {
  for (const OptimizerOptions& options : trial_optimizers()) {
    UpdaterTrial trial(GetParam(), options);
    trial.update(0, kNan, report_of({.loss_sum = kInfinity}),
                 0);  // skipped: leaves the kept statistics
    const std::vector<float> before = trial.state();
    const std::size_t last = trial.table().entries().back().offset + 49;
    for (const std::size_t place : {std::size_t{0}, std::size_t{63}, std::size_t{500}, last})
      for (const float value : {kInfinity, -kInfinity, kNan})
        for (const double clip_norm : {0.0, 1.0}) {
          EXPECT_FALSE(trial.update(place, value, kGood, clip_norm))
              << to_string(options) << " at " << place;
          ASSERT_EQ(trial.state(), before)
              << to_string(options) << ", " << value << " at " << place;
        }
    EXPECT_TRUE(trial.update(0, 0.25F, kGood, 0));
    EXPECT_NE(trial.state(), before);
  }
}

TEST_P(UpdaterOn, MatchesTheCpu) {
  for (const OptimizerOptions& options : trial_optimizers()) {
    UpdaterTrial cpu(device::DeviceKind::cpu, options);
    UpdaterTrial trial(GetParam(), options);
    for (const float value : {0.75F, -2.0F, 0.0F}) {
      EXPECT_TRUE(cpu.update(5, value, kGood, 0));
      EXPECT_TRUE(trial.update(5, value, kGood, 0));
    }
    EXPECT_THAT(trial.state(), ::testing::Pointwise(::testing::FloatNear(1e-5F), cpu.state()))
        << to_string(options);
  }
}

/// Sizes around the blocks of a GPU: less than a block, with and without a remainder.
TEST_P(UpdaterOn, MatchesTheCpuForAnyParameterSize) {
  for (const OptimizerOptions& options : trial_optimizers())
    for (const std::int64_t size : {1, 2048 - 192, 2049, 60'001}) {
      UpdaterTrial cpu(device::DeviceKind::cpu, options, size);
      UpdaterTrial trial(GetParam(), options, size);
      UpdaterTrial narrow(GetParam(), options, size, true);
      for (UpdaterTrial* const one : {&cpu, &trial, &narrow}) {
        one->randomize();
        EXPECT_TRUE(one->update(0, 0.75F, kGood, 1));
        EXPECT_TRUE(one->update(0, -2.0F, kGood, 0));
      }
      std::vector<float> state = trial.state();
      EXPECT_THAT(state, ::testing::Pointwise(::testing::FloatNear(1e-5F), cpu.state()))
          << to_string(options) << ", " << size;
      std::vector<BFloat16> rounded(trial.table().flat_size());
      lockstep::narrow(std::span(state).first(rounded.size()), rounded);
      state.resize(state.size() + rounded.size());
      widen(rounded, std::span(state).last(rounded.size()));
      EXPECT_EQ(narrow.state(), state) << to_string(options) << ", " << size;
    }
}

TEST_P(UpdaterOn, AcceptsTheLargestFiniteGradient) {
  for (const double clip_norm : {0.0, 1.0}) {
    UpdaterTrial trial(GetParam(), Sgd{});
    EXPECT_TRUE(trial.update(500, kLargest, kGood, clip_norm));
    EXPECT_TRUE(trial.update(500, -kLargest, kGood, clip_norm));
  }
}

TEST_P(UpdaterOn, SkipsALossThatIsNotFinite) {
  UpdaterTrial trial(GetParam(), Adam{});
  EXPECT_TRUE(trial.update(0, 0, kGood, 0));
  Report sum = report_of({.loss_sum = 3e38, .samples = 4});
  EXPECT_TRUE(trial.update(0, 0, sum, 0));
  // Two parts with finite losses, whose sum over the replicas is infinite.
  sum[0] = kInfinity;
  EXPECT_FALSE(trial.update(0, 0, sum, 0));
  EXPECT_FALSE(trial.update(0, 0, report_of({.loss_sum = kInfinity, .samples = 4}), 0));
  EXPECT_FALSE(trial.update(0, 0, report_of({.loss_sum = 1e39, .samples = 4}), 0))
      << "infinite as a float";
}

INSTANTIATE_TEST_SUITE_P(Devices, UpdaterOn, ::testing::ValuesIn(reference_devices()),
                         [](const auto& test) {
                           return test.param == device::DeviceKind::gpu ? "gpu" : "cpu";
                         });

}  // namespace
}  // namespace lockstep::inline v0::model
