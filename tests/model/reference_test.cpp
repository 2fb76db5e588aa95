// The same weights and batches as in PyTorch give the same logits, gradients and losses; scripts/make_reference wrote
// the files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/cpu.h"
#include "model/compiled_model.h"
#include "model/optimizer.h"
#include "model/zoo/zoo.h"
#include "tests/model/support/reference_file.h"

namespace lockstep::model {
namespace {

using ::testing::Pointwise;

constexpr std::int64_t kBatch = 8;
constexpr std::size_t kBatches = 3;
constexpr std::size_t kSteps = 10;

struct Case {
  const char* name;
  Network (*make)(Shape input);
  double loss_tolerance;  // relative, over ten steps
};

std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }
std::string name_of_case(const ::testing::TestParamInfo<Case>& info) { return info.param.name; }

// A model with the reference's weights, and its batches.
class Replay {
 public:
  explicit Replay(const Case& c)
      : reference_(c.name),
        model_(std::make_shared<const Network>(c.make(input_shape())), device::Device{}, allocator_) {
    device::set_thread_budget(1);
    model_.initialize(1);
    for (const ParameterInfo& entry : model_.parameter_table().entries()) {
      const auto& array = reference_.array("parameter/" + entry.name);
      if (array.shape != entry.shape) throw std::runtime_error(entry.name + " has another shape than in the reference");
      std::ranges::copy(array.values, ParameterTable::slice(model_.parameters(), entry).begin());
    }
  }

  const ReferenceFile& reference() const { return reference_; }
  CompiledModel& model() { return model_; }

  BatchView batch(std::size_t index) const {
    const auto size = static_cast<std::size_t>(kBatch * element_count(input_shape()));
    return {
        .samples = kBatch,
        .features = std::span(reference_.array("input").values).subspan(index * size, size),
        .targets = {.labels = std::span(reference_.integers("labels")).subspan(index * kBatch, kBatch), .values = {}}};
  }
  double train(std::size_t index) {
    return model_.train_batch(batch(index), {.global_samples = kBatch}, SparseCategoricalCrossentropy{}).mean_loss();
  }

 private:
  Shape input_shape() const {
    const Shape& shape = reference_.array("input").shape;
    return {shape.begin() + 1, shape.end()};
  }

  ReferenceFile reference_;
  device::HostAllocator allocator_;
  CompiledModel model_;
};

// The largest difference, relative to the largest value of `expected`.
double relative_difference(std::span<const float> actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double largest = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])));
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / largest;
}

class Reference : public ::testing::TestWithParam<Case> {};

TEST_P(Reference, GradientsOfTheFirstStepAreThoseOfPyTorch) {
  Replay replay(GetParam());
  replay.train(0);
  ASSERT_EQ(replay.reference().names("gradient/").size(), replay.model().parameter_table().entries().size());
  for (const ParameterInfo& entry : replay.model().parameter_table().entries())
    EXPECT_LT(relative_difference(ParameterTable::slice(replay.model().gradients(), entry),
                                  replay.reference().array("gradient/" + entry.name).values),
              1e-4)
        << entry.name;
}

void expect_the_trajectory(const Case& c, const std::string& name, const OptimizerOptions& options, float rate) {
  Replay replay(c);
  const ReferenceFile& reference = replay.reference();
  const std::vector<float>& losses = reference.array(name + "/losses").values;
  ASSERT_EQ(losses.size(), kSteps);
  Optimizer optimizer(options, replay.model().parameter_table());
  for (std::size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(replay.train(step % kBatches), losses[step], c.loss_tolerance * static_cast<double>(losses[step]))
        << name << " step " << step;
    optimizer.apply(replay.model().parameters(), replay.model().gradients(), rate, static_cast<std::int64_t>(step) + 1);
  }
  const auto logits = replay.model().predict_batch(kBatch, replay.batch(0).features);
  EXPECT_LT(relative_difference(logits, reference.array(name + "/inference_logits").values), 10 * c.loss_tolerance)
      << name;
  for (const ParameterInfo& entry : replay.model().buffer_table().entries())
    EXPECT_LT(relative_difference(ParameterTable::slice(replay.model().buffers(), entry),
                                  reference.array(name + "/" + entry.name).values),
              10 * c.loss_tolerance)
        << name << " " << entry.name;
}

TEST_P(Reference, TenStepsOfAdamFollowPyTorch) { expect_the_trajectory(GetParam(), "adam", Adam{}, 1e-3f); }

TEST_P(Reference, TenStepsOfMomentumFollowPyTorch) {
  expect_the_trajectory(GetParam(), "sgd", Sgd{.momentum = 0.9f}, 1e-2f);
}

INSTANTIATE_TEST_SUITE_P(
    Models, Reference,
    ::testing::Values(
        Case{"mlp",
             [](Shape input) {
               return zoo::mlp(std::move(input), 10, {24, 16});
             },
             1e-4},
        Case{"cnn", [](Shape input) { return zoo::cnn(std::move(input), 10); }, 1e-4},
        Case{"resnet18_cifar", [](Shape input) { return zoo::resnet18(std::move(input), 10, {.width = 4}); }, 1e-4},
        Case{"resnet18_imagenet",
             [](Shape input) { return zoo::resnet18(std::move(input), 10, {.width = 4, .stem = zoo::Stem::imagenet}); },
             1e-4}),
    name_of_case);

// Inference uses other kernels than training; without normalization their logits are the same.
TEST(ReferenceInference, LogitsAreThoseOfPyTorch) {
  for (const Case& c : {Case{"mlp",
                             [](Shape input) {
                               return zoo::mlp(std::move(input), 10, {24, 16});
                             },
                             0},
                        Case{"cnn", [](Shape input) { return zoo::cnn(std::move(input), 10); }, 0}}) {
    Replay replay(c);
    EXPECT_LT(relative_difference(replay.model().predict_batch(kBatch, replay.batch(0).features),
                                  replay.reference().array("logits").values),
              1e-5)
        << c.name;
  }
}

}  // namespace
}  // namespace lockstep::model
