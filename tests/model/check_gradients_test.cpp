// check_gradients() accepts right gradients, and names the first wrong one.
#include "lockstep/model/compiled/check_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/layer/custom_layer.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What a ScaledSum computes wrongly.
enum class Wrong { nothing, scale, second_input, one_element, adds, forgets };

/// y = scale * a + b^2
class ScaledSum final : public CustomLayer {
 public:
  explicit ScaledSum(Wrong wrong = Wrong::nothing) : wrong_(wrong) {}
  std::string kind() const override { return "scaled_sum"; }
  Shape build(BuildContext& context) const override {
    context.parameter("scale", {1}, {.kind = Initializer::Kind::constant, .value = 1});
    return context.inputs()[0];
  }
  void forward(const Tensors& t, const PassContext& /*pass*/) const override {
    for (std::size_t i = 0; i < t.output.size(); ++i)
      t.output[i] = t.parameters[0][0] * t.inputs[0][i] + t.inputs[1][i] * t.inputs[1][i];
  }
  void backward(const Tensors& t, const PassContext& /*pass*/) const override {
    float& scale = t.parameter_gradients[0][0];
    if (wrong_ == Wrong::forgets) return;
    if (wrong_ != Wrong::adds) scale = 0;
    for (std::size_t i = 0; i < t.output_gradient.size(); ++i) {
      scale += t.output_gradient[i] * t.inputs[0][i] * (wrong_ == Wrong::scale ? 1.5F : 1);
      const float b = wrong_ == Wrong::second_input ? 1 : t.inputs[1][i];
      t.input_gradients[1][i] = 2 * t.output_gradient[i] * b;
      t.input_gradients[0][i] = t.output_gradient[i] * t.parameters[0][0];
    }
    if (wrong_ == Wrong::one_element) t.input_gradients[0][7] = 0;
  }

 private:
  Wrong wrong_;
};

std::string error_with(Wrong wrong) {
  return input_error_of([&] { check_gradients(ScaledSum(wrong), {{4}, {4}}); });
}

TEST(CheckGradients, AcceptsRightLayers) {
  check_gradients(ScaledSum(), {{4}, {4}});
  check_gradients(Dense({.units = 5}), {{7}});
  check_gradients(Conv2D({.filters = 3, .kernel = 3}), {{6, 6, 2}});
  check_gradients(LayerNormalization(), {{8}}, {.samples = 5});
  check_gradients(Embedding({.vocabulary = 3, .dimension = 4}), {{6}});
  check_gradients(Add(), {{3}, {3}, {3}});
}

TEST(CheckGradients, AcceptsKinksThatAreFewerThanSteps) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    check_gradients(ReLU(), {{40}}, {.seed = seed, .elements = 200});
}

TEST(CheckGradients, NamesTheFirstWrongArray) {
  EXPECT_THAT(error_with(Wrong::scale),
              StartsWith("[scaled_sum] expected element 0 of the gradient of scaled_sum/scale to "
                         "be "));
  EXPECT_THAT(error_with(Wrong::second_input), HasSubstr(" of the gradient of input 1 to be "));
  EXPECT_THAT(error_with(Wrong::one_element),
              AllOf(HasSubstr("expected element 7 of the gradient of input 0 to be "),
                    EndsWith(", the central difference of the loss, got 0 from the backward "
                             "pass")));
}

TEST(CheckGradients, FindsGradientsThatAreNotWritten) {
  EXPECT_THAT(error_with(Wrong::adds), HasSubstr("of the gradient of scaled_sum/scale"));
  EXPECT_THAT(error_with(Wrong::forgets), HasSubstr("got nan from the backward pass"));
}

TEST(CheckGradients, ChecksNetworks) {
  Network network({4}, "net");
  const NodeId first = network.add(Dense({.units = 4}));
  network.add(Tanh());
  network.add(ScaledSum(), {first, network.last()});
  check_gradients(network);
  network.add(ScaledSum(Wrong::second_input), {first, network.last()});
  EXPECT_THAT(input_error_of([&] { check_gradients(network); }), StartsWith("[net] expected "));
}

/// (z - t)^4 for values; with a `factor` other than 4, a wrong gradient.
class Fourth final : public CustomLoss {
 public:
  explicit Fourth(float factor = 4) : factor_(factor) {}
  std::string name() const override { return "fourth"; }
  double value(std::span<const float> outputs, const SampleTargets& targets) const override {
    double sum = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const double d = static_cast<double>(outputs[i]) - static_cast<double>(targets.values[i]);
      sum += d * d * d * d;
    }
    return sum;
  }
  void gradient(std::span<const float> outputs, const SampleTargets& targets,
                std::span<float> gradient) const override {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const float d = outputs[i] - targets.values[i];
      gradient[i] = factor_ * d * d * d;
    }
  }

 private:
  float factor_;
};

TEST(CheckGradients, ChecksLosses) {
  check_gradients(std::make_shared<Fourth>(), 5);
  EXPECT_THAT(input_error_of([] { check_gradients(std::make_shared<Fourth>(3.5F), 5); }),
              HasSubstr("[fourth] expected element "));
  const std::vector<float> outputs = {1, 2, -1, 0.5F};
  const std::vector<float> targets = {0, 2, 1, 0};
  check_gradients(std::make_shared<Fourth>(), outputs, {.values = targets}, {.samples = 2});
}

TEST(CheckGradients, AcceptsBuiltInLosses) {
  check_gradients(SparseCategoricalCrossentropy{}, 6);
  check_gradients(MeanSquaredError{}, 3);
  check_gradients(BinaryCrossentropy{}, 2);
  check_gradients(Huber{.delta = 0.5F}, 3);
}

}  // namespace
}  // namespace lockstep::inline v0::model
