// A GPU computes the same as the CPU, layer by layer, up to rounding. Runs on gpu:0, simulated or
// real.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/device/gpu.h"
#include "tests/model/support/agreement_cases.h"
#include "tests/model/support/sides.h"

namespace lockstep::inline v0::model {
namespace {

using device::Device;

using AgreementSetting = std::tuple<AgreementCase, Precision>;

class GpuAgreement : public testing::TestWithParam<AgreementSetting> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }

  static const AgreementCase& test_case() { return std::get<0>(GetParam()); }
  static ComputeOptions options() {
    return {.precision = std::get<1>(GetParam()), .deterministic = true};
  }
  static double tolerance() {
    switch (options().precision) {
      case Precision::float32:
        return 1e-4 * test_case().depth;
      case Precision::bfloat16:
        return 0.12;
      case Precision::float16:
        break;
    }
    return 0.03;
  }

  void expect_training_agrees(const ComputeOptions& options);
  double gradient_tolerance(const Data& data, const Loss& loss, const Values& gradients) const;

  std::vector<Data> batches() const {
    std::vector<Data> all;
    for (const std::int64_t samples : test_case().batches) all.emplace_back(*network_, samples);
    return all;
  }

  const Loss entropy_ = SparseCategoricalCrossentropy{.label_smoothing = 0.1f};
  std::shared_ptr<const Network> network_ = std::make_shared<const Network>(test_case().make());
};

// The gradient of a deep network jumps where an activation changes its sign. The tolerance is its
// change for parameters that differ by some roundings.
double GpuAgreement::gradient_tolerance(const Data& data, const Loss& loss,
                                        const Values& gradients) const {
  constexpr float kRoundings = 3e-6f;
  constexpr std::uint64_t kTimes = 5;
  double largest = tolerance();
  if (test_case().depth == 1) return largest;
  for (std::uint64_t seed = 1; seed <= kTimes; ++seed) {
    Side other(Device{}, network_, {});
    other.perturb(kRoundings, seed);
    other.model().train_batch(data.batch_for(loss), data.context(), loss);
    largest = std::max(largest, error(other.gradients(), gradients));
  }
  return largest;
}

void GpuAgreement::expect_training_agrees(const ComputeOptions& options) {
  Side cpu(Device{}, network_, {});
  Side gpu(kGpu, network_, options);
  for (const Data& data : batches())
    for (const Loss& loss : {entropy_, Loss(MeanSquaredError{})}) {
      SCOPED_TRACE(to_string(loss) + " of " + std::to_string(data.samples));
      const MetricSums expected =
          cpu.model().train_batch(data.batch_for(loss), data.context(), loss);
      const MetricSums sums = gpu.model().train_batch(data.batch_for(loss), data.context(), loss);
      EXPECT_EQ(sums.samples, data.samples);
      EXPECT_EQ(sums.has_accuracy(), expected.has_accuracy());
      EXPECT_NEAR(sums.loss_sum, expected.loss_sum, tolerance() * expected.loss_sum);
      if (options.precision == Precision::float32) {
        EXPECT_EQ(sums.correct, expected.correct);
        EXPECT_EQ(sums.correct_top5, expected.correct_top5);
      }
      EXPECT_LE(error(gpu.gradients(), cpu.gradients()),
                gradient_tolerance(data, loss, cpu.gradients()));
      EXPECT_LE(error(gpu.buffers(), cpu.buffers()), tolerance());
    }
}

TEST_P(GpuAgreement, TrainsAsTheCpuDoes) { expect_training_agrees(options()); }

TEST_P(GpuAgreement, PredictsAndEvaluatesAsTheCpuDoes) {
  Side cpu(Device{}, network_, {});
  Side gpu(kGpu, network_, options());
  for (const Data& data : batches()) {
    for (std::size_t k = 0; k < network_->outputs().size(); ++k) {
      const auto reference = cpu.model().predict_batch(data.batch_for(entropy_), k);
      const auto outputs = gpu.model().predict_batch(data.batch_for(entropy_), k);
      EXPECT_LE(error({outputs.begin(), outputs.end()}, {reference.begin(), reference.end()}),
                tolerance());
    }
    const double expected = cpu.model().evaluate_batch(data.batch_for(entropy_), entropy_).loss_sum;
    EXPECT_NEAR(gpu.model().evaluate_batch(data.batch_for(entropy_), entropy_).loss_sum, expected,
                tolerance() * expected);
  }
}

TEST_P(GpuAgreement, AddsUpMicroBatches) {
  if (!network_->buffers().entries().empty()) return;  // statistics are of a micro-batch
  Side gpu(kGpu, network_, options());
  for (const Data& data : batches()) {
    gpu.model().train_batch(data.batch_for(entropy_), data.context(), entropy_);
    const Values whole = gpu.gradients();
    const std::int64_t half = data.samples / 2;
    gpu.model().train_batch(data.part(0, half), data.context(), entropy_);
    gpu.model().train_batch(data.part(half, data.samples - half), data.context(half), entropy_,
                            true);
    EXPECT_LE(error(gpu.gradients(), whole), tolerance()) << data.samples;
  }
}

TEST_P(GpuAgreement, IsBitReproducible) {
  for (const Data& data : batches()) {
    const auto run = [&](bool staged) {
      Side gpu(kGpu, network_, options());
      const BatchView batch = data.batch_for(entropy_);
      if (staged) gpu.model().stage(batch);
      gpu.model().load(batch, data.context(), entropy_, staged);
      gpu.model().train_loaded(data.samples, data.context(), entropy_);
      return gpu.gradients();
    };
    EXPECT_EQ(run(false), run(true));
  }
}

// Convolutions that also compute the statistics of the following normalization, if cuDNN has an
// engine for the shape.
class GpuFusedStatistics : public GpuAgreement {};

TEST_P(GpuFusedStatistics, TrainAsTheCpuDoes) {
  expect_training_agrees(
      {.precision = options().precision, .fused_statistics = FusedStatistics::where_possible});
}

std::string name_of_agreement(const testing::TestParamInfo<AgreementSetting>& test) {
  return std::get<0>(test.param).name + "_" + to_string(std::get<1>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuAgreement,
                         testing::Combine(testing::ValuesIn(layer_cases()),
                                          testing::Values(Precision::float32, Precision::bfloat16,
                                                          Precision::float16)),
                         name_of_agreement);
INSTANTIATE_TEST_SUITE_P(Activations, GpuAgreement,
                         testing::Combine(testing::ValuesIn(activation_cases()),
                                          testing::Values(Precision::float32, Precision::bfloat16,
                                                          Precision::float16)),
                         name_of_agreement);
INSTANTIATE_TEST_SUITE_P(Layers, GpuFusedStatistics,
                         testing::Combine(testing::Values(AgreementCase{"normalized_convolutions",
                                                                        normalized_convolutions}),
                                          testing::Values(Precision::bfloat16, Precision::float16)),
                         name_of_agreement);
INSTANTIATE_TEST_SUITE_P(Networks, GpuAgreement,
                         testing::Combine(testing::ValuesIn(deep_cases()),
                                          testing::Values(Precision::float32)),
                         name_of_agreement);

}  // namespace
}  // namespace lockstep::inline v0::model
