// Logits, gradients and losses match PyTorch for equal weights and batches, from files of
// scripts/make_reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/reference_devices.h"
#include "tests/model/support/reference_file.h"
#include "tests/model/support/reference_training.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Pointwise;

constexpr std::int64_t kBatch = 8;
constexpr std::size_t kBatches = 3;
constexpr std::size_t kSteps = 10;

struct ReferenceCase {
  const char* name;
  Network (*make)(Shape input);
  double loss_tolerance;  // relative, over ten steps
};

std::ostream& operator<<(std::ostream& out, const ReferenceCase& test) { return out << test.name; }

using ReferenceSetting = std::tuple<ReferenceCase, device::DeviceKind>;
std::string name_of_reference(const ::testing::TestParamInfo<ReferenceSetting>& info) {
  const bool on_gpu = std::get<1>(info.param) == device::DeviceKind::gpu;
  return std::string(std::get<0>(info.param).name) + (on_gpu ? "_gpu" : "_cpu");
}

// A model with the reference's weights, and its batches.
class Replay {
 public:
  Replay(const ReferenceCase& c, device::DeviceKind kind)
      : reference_(c.name),
        training_(
            c.make(input_shape()), kind,
            [this](const ParameterInfo& entry, std::span<float> values) {
              const auto& array = reference_.array("parameter/" + entry.name);
              if (array.shape != entry.shape)
                throw std::runtime_error(entry.name + " has another shape than in the reference");
              std::ranges::copy(array.values, values.begin());
            }) {}

  const ReferenceFile& reference() const { return reference_; }
  ReferenceTraining& training() { return training_; }
  CompiledModel& model() { return training_.model(); }

  BatchView batch(std::size_t index) const {
    const auto size = static_cast<std::size_t>(kBatch * element_count(input_shape()));
    return {.samples = kBatch,
            .features = std::span(reference_.array("input").values).subspan(index * size, size),
            .targets = {
                .labels = std::span(reference_.integers("labels")).subspan(index * kBatch, kBatch),
                .values = {}}};
  }
  device::HostView view(std::span<float> values) { return training_.view(values); }
  double train(std::size_t index) { return training_.train(batch(index)); }

 private:
  Shape input_shape() const {
    const Shape& shape = reference_.array("input").shape;
    return {shape.begin() + 1, shape.end()};
  }

  ReferenceFile reference_;
  ReferenceTraining training_;
};

// The largest difference, relative to the largest value of `expected`.
double relative_difference(std::span<const float> actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double largest = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(
        difference, std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

class Reference : public ::testing::TestWithParam<ReferenceSetting> {
 protected:
  void SetUp() override {
    if (kind() == device::DeviceKind::gpu && !device::gpu_is_available())
      GTEST_SKIP() << device::gpu_unavailable_reason();
  }
  static const ReferenceCase& test_case() { return std::get<0>(GetParam()); }
  static device::DeviceKind kind() { return std::get<1>(GetParam()); }

  static void expect_the_trajectory(const std::string& name, const OptimizerOptions& options,
                                    float rate);
};

TEST_P(Reference, GradientsOfTheFirstStepAreThoseOfPyTorch) {
  Replay replay(test_case(), kind());
  replay.train(0);
  device::HostView gradients = replay.view(replay.model().gradients());
  ASSERT_EQ(replay.reference().names("gradient/").size(),
            replay.model().parameter_table().entries().size());
  for (const ParameterInfo& entry : replay.model().parameter_table().entries())
    EXPECT_LT(relative_difference(ParameterTable::slice(gradients.values(), entry),
                                  replay.reference().array("gradient/" + entry.name).values),
              1e-4)
        << entry.name;
}

void Reference::expect_the_trajectory(const std::string& name, const OptimizerOptions& options,
                                      float rate) {
  const ReferenceCase& c = test_case();
  Replay replay(c, kind());
  const ReferenceFile& reference = replay.reference();
  const std::vector<float>& losses = reference.array(name + "/losses").values;
  ASSERT_EQ(losses.size(), kSteps);
  const std::unique_ptr<Updater> updater = replay.training().updater(options);
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(replay.train(step % kBatches), losses[step],
                c.loss_tolerance * static_cast<double>(losses[step]))
        << name << " step " << step;
    replay.training().update(*updater, rate, static_cast<std::int64_t>(step) + 1);
  }
  const auto logits = replay.model().predict_batch(kBatch, replay.batch(0).features);
  EXPECT_LT(relative_difference(logits, reference.array(name + "/inference_logits").values),
            10 * c.loss_tolerance)
      << name;
  device::HostView buffers = replay.view(replay.model().buffers());
  for (const ParameterInfo& entry : replay.model().buffer_table().entries())
    EXPECT_LT(relative_difference(ParameterTable::slice(buffers.values(), entry),
                                  reference.array(name + "/" + entry.name).values),
              10 * c.loss_tolerance)
        << name << " " << entry.name;
}

TEST_P(Reference, TenStepsOfAdamFollowPyTorch) { expect_the_trajectory("adam", Adam{}, 1e-3f); }

TEST_P(Reference, TenStepsOfMomentumFollowPyTorch) {
  expect_the_trajectory("sgd", Sgd{.momentum = 0.9f}, 1e-2f);
}

const ReferenceCase kReferenceCases[] = {
    {"mlp",
     [](Shape input) {
       return zoo::mlp(std::move(input), 10, {24, 16});
     },
     1e-4},
    {"cnn", [](Shape input) { return zoo::cnn(std::move(input), 10); }, 1e-4},
    {"resnet18_cifar",
     [](Shape input) { return zoo::resnet18(std::move(input), 10, {.width = 4}); }, 1e-4},
    {"resnet18_imagenet",
     [](Shape input) {
       return zoo::resnet18(std::move(input), 10, {.width = 4, .stem = zoo::Stem::imagenet});
     },
     1e-4},
};

INSTANTIATE_TEST_SUITE_P(Models, Reference,
                         ::testing::Combine(::testing::ValuesIn(kReferenceCases),
                                            ::testing::ValuesIn(reference_devices())),
                         name_of_reference);

// Inference uses other kernels than training; without normalization their logits are equal.
TEST(ReferenceInference, LogitsAreThoseOfPyTorch) {
  for (const ReferenceCase& c :
       {ReferenceCase{"mlp",
                      [](Shape input) {
                        return zoo::mlp(std::move(input), 10, {24, 16});
                      },
                      0},
        ReferenceCase{"cnn", [](Shape input) { return zoo::cnn(std::move(input), 10); }, 0}}) {
    Replay replay(c, device::DeviceKind::cpu);
    EXPECT_LT(relative_difference(replay.model().predict_batch(kBatch, replay.batch(0).features),
                                  replay.reference().array("logits").values),
              1e-5)
        << c.name;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::model
