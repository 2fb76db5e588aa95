#include "lockstep/model/layers/elementwise/elementwise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/layers/elementwise/gelu.h"
#include "lockstep/model/layers/elementwise/leaky_relu.h"
#include "lockstep/model/layers/elementwise/relu6.h"
#include "lockstep/model/layers/elementwise/rescaling.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"
#include "lockstep/model/layers/elementwise/silu.h"
#include "lockstep/model/network/network_json.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

TEST(ReLULayer, ZeroesNegativeValues) {
  Network network({4});
  network.add(ReLU());
  Trial trial(std::move(network), 1);
  trial.features() = {-1, 0, 0.5f, 2};
  EXPECT_THAT(trial.predict(), ElementsAre(0, 0, 0.5f, 2));
}

// Otherwise the loss of a diverged network would be finite.
TEST(ReLULayer, PropagatesNaNAfterOtherLayers) {
  const auto expect_nan = [](const Network& network) {
    for (const bool trains : {false, true}) {
      Trial trial(Network(network), 1);
      trial.features()[0] = std::numeric_limits<float>::quiet_NaN();
      if (trains)
        EXPECT_THAT(trial.train().loss_sum, ::testing::IsNan());
      else
        EXPECT_THAT(trial.predict(), ::testing::Contains(::testing::IsNan()));
    }
  };
  for (const std::int64_t size : {3, 16, 21}) {
    SCOPED_TRACE(size);
    Network alone({size});
    alone.add(ReLU());
    expect_nan(alone);
    Network bounded({size});
    bounded.add(ReLU6());
    expect_nan(bounded);
    Network behind_dense({size});
    behind_dense.add(Dense({.units = size}));
    behind_dense.add(ReLU());
    expect_nan(behind_dense);
  }
  for (const std::int64_t channels : {3, 64}) {  // by oneDNN, and by Winograd's algorithm
    SCOPED_TRACE(channels);
    Network behind_convolution({16, 16, channels});
    behind_convolution.add(Conv2D({.filters = channels, .kernel = 3, .padding = Padding::same}));
    behind_convolution.add(ReLU());
    expect_nan(behind_convolution);
  }
}

TEST(ReLULayer, PassesTheGradientOfPositiveValues) {
  Network network({4});
  network.add(Shift());
  network.add(ReLU());
  Trial trial(std::move(network), 1);
  trial.features() = {-1, 0, 0.5f, 2};
  std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
  trial.targets() = {-2, -2, -1.5f, 0};  // d/dy of (y - target)^2 / 4 is 1 at the kept values
  trial.train();
  EXPECT_THAT(trial.gradient("shift/offset"), ElementsAre(0, 0, 1, 1));
}

TEST(ReLULayer, WorksWhereItsInputHasOtherReaders) {
  Network network({6});
  const NodeId shifted = network.add(Shift());
  const NodeId cut = network.add(ReLU(), {shifted});
  network.add(Add(), {shifted, cut});
  Trial trial(network, 1);
  trial.train();
  for (std::size_t i = 0; i < 6; ++i) {
    const float x = trial.features()[i] + trial.parameter("shift/offset")[i];
    EXPECT_FLOAT_EQ(trial.predict()[i], x + std::max(x, 0.0f));
  }
  expect_gradients_match_differences(network, {.samples = 1, .step = 1e-3f});
}

struct PointwiseCase {
  std::string name;
  double (*function)(double);
  std::string description = R"("type": ")" + name + '"';  // in JSON
  float step = 1e-2f;                                     // step of the finite differences
};

const PointwiseCase kPointwiseCases[] = {
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }},
    {"approximate_gelu",
     [](double x) {
       return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
     },
     R"("type": "gelu", "approximate": true)"},
    {"relu6", [](double x) { return std::clamp(x, 0.0, 6.0); }, R"("type": "relu6")", 1e-3f},
    {"leaky_relu", [](double x) { return x > 0 ? x : 0.3 * x; }, R"("type": "leaky_relu")", 1e-3f},
    {"elu", [](double x) { return x > 0 ? x : std::expm1(x); }, R"("type": "elu")", 1e-3f},
    {"selu",
     [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); },
     R"("type": "selu")", 1e-3f},
    {"softplus", [](double x) { return std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0); }},
    {"softsign", [](double x) { return x / (1 + std::abs(x)); }},
    {"mish",
     [](double x) { return x * std::tanh(std::log1p(std::exp(-std::abs(x))) + std::max(x, 0.0)); }},
    {"hard_sigmoid", [](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); },
     R"("type": "hard_sigmoid")", 1e-3f},
    {"hard_swish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); },
     R"("type": "hard_swish")", 1e-3f},
    {"hard_tanh", [](double x) { return std::clamp(x, -1.5, 6.0); },
     R"("type": "hard_tanh", "min_value": -1.5, "max_value": 6)", 1e-3f},
    {"swish", [](double x) { return x / (1 + std::exp(-1.702 * x)); },
     R"("type": "silu", "beta": 1.702)"},
    {"rescaling", [](double x) { return 1.5 * x - 2; },
     R"("type": "rescaling", "scale": 1.5, "offset": -2)"},
    {"leaky_relu_of_another_slope", [](double x) { return x > 0 ? x : 0.125 * x; },
     R"("type": "leaky_relu", "negative_slope": 0.125)", 1e-3f},
};

class PointwiseLayers : public testing::TestWithParam<PointwiseCase> {
 protected:
  static Network network() {
    return network_from_json(R"({"input": [7], "layers": [{)" + GetParam().description + "}]}",
                             "net.json");
  }
  static void expect_values(Trial trial, double tolerance) {
    trial.features() = {-200, -3, -0.5f, 0, 0.25f, 2, 200};
    const std::vector<float> outputs = trial.predict();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const double expected = GetParam().function(trial.features()[i]);
      EXPECT_NEAR(outputs[i], expected, tolerance * std::max(1.0, std::abs(expected))) << i;
    }
  }
};

TEST_P(PointwiseLayers, ComputeTheirFunction) { expect_values(Trial(network(), 1), 1e-6); }

// Enough elements for several blocks, with vector instructions if the function allows.
TEST_P(PointwiseLayers, ComputeTheirFunctionOfManyElements) {
  Network wide({1100});
  wide.add(Shift());
  wide.add_node(network().nodes().front().layer, {wide.last()}, "");
  Trial trial(std::move(wide), 1);
  std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
  for (float& x : trial.features()) x *= 8;
  const std::vector<float> outputs = trial.predict();
  std::vector<float>& targets = trial.targets();  // so that the gradient of an output is 1
  for (std::size_t i = 0; i < outputs.size(); ++i) targets[i] = outputs[i] - 550;
  trial.train();
  const auto gradient = trial.gradient("shift/offset");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto x = static_cast<double>(trial.features()[i]);
    const double expected = GetParam().function(x);
    EXPECT_NEAR(outputs[i], expected, 2e-6 * std::max(1.0, std::abs(expected))) << x;
    if (std::abs(x) < 0.01 || std::abs(x - 6) < 0.01) continue;  // where some have a kink
    const double step = 1e-4;
    const double slope =
        (GetParam().function(x + step) - GetParam().function(x - step)) / (2 * step);
    EXPECT_NEAR(gradient[i], slope, 1e-4) << x;
  }
}

TEST_P(PointwiseLayers, RoundToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  expect_values(Trial(network(), 1, 1, Precision::bfloat16), 1.0 / 256);
}

TEST_P(PointwiseLayers, HaveTheGradientsOfTheirInput) {
  Network shifted({7});
  shifted.add(Shift());
  shifted.add_node(network().nodes().front().layer, {shifted.last()}, "");
  expect_gradients_match_differences(shifted, {.step = GetParam().step});
}

INSTANTIATE_TEST_SUITE_P(Functions, PointwiseLayers, testing::ValuesIn(kPointwiseCases),
                         [](const auto& test) { return test.param.name; });

TEST(PointwiseLayersOfInputs, KeepTheInputThatAFunctionInPlaceWouldOverwrite) {
  Network network({5});
  network.add(Shift());
  network.add(GELU());
  network.add(Sigmoid());
  network.add(SiLU());
  network.add(LeakyReLU({.negative_slope = 0}));
  network.add(GELU({.approximate = true}));
  expect_gradients_match_differences(network, {.step = 1e-2f});
}

TEST(ReLU6Layer, PassesTheGradientBetweenZeroAndSix) {
  Network network({4});
  network.add(Shift());
  network.add(ReLU6());
  Trial trial(std::move(network), 1);
  trial.features() = {-1, 0, 6.5f, 2};
  std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
  trial.targets() = {-2, -2, 4, 0};  // as in ReLULayer
  trial.train();
  EXPECT_THAT(trial.gradient("shift/offset"), ElementsAre(0, 0, 0, 1));
}

TEST(RescalingLayer, MultipliesTheGradientByItsFactor) {
  constexpr RescalingFunction function = {.scale = 4, .offset = 7, .gradient_factor = 0.0625f};
  EXPECT_EQ(function.forward(2), 15);
  EXPECT_EQ(function.gradient(15, 8), 2);
}

TEST(LeakyReLULayer, RefusesASlopeBelowZero) {
  EXPECT_EQ(input_error_of([] { Network({4}).add(LeakyReLU({.negative_slope = -0.5f})); }),
            "[layer leaky_re_lu (leaky_re_lu)] expected a negative_slope of at least 0, got -0.5");
}

// A network of one FakeQuantize after a Shift of 0.
Trial quantized(const FakeQuantizeFunction& function, const std::vector<float>& features) {
  Network network({static_cast<std::int64_t>(features.size())});
  network.add(Shift());
  network.add(FakeQuantize(function));
  Trial trial(std::move(network), 1);
  trial.features() = features;
  std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
  return trial;
}

TEST(FakeQuantizeLayer, RoundsToTheIntegersOfItsTypeWithTiesToEven) {
  const std::vector<float> features = {-1e30f, -70,   -64.25f, -0.75f, -0.25f, 0.2f,
                                       0.25f,  0.75f, 1.1f,    63.3f,  64,     1e30f};
  EXPECT_THAT(quantized({.scale = 0.5f}, features).predict(),
              ElementsAre(-64, -64, -64, -1, 0, 0, 0, 1, 1, 63.5f, 63.5f, 63.5f));
  EXPECT_THAT(quantized({.scale = 0.5f, .zero_point = 3}, {-70, 70}).predict(),
              ElementsAre(-65.5f, 62));
  EXPECT_THAT(
      quantized({.scale = 0.5f, .zero_point = 5, .dtype = Int8Type::uint8}, {-3, -2.5f, 0.6f, 200})
          .predict(),
      ElementsAre(-2.5f, -2.5f, 0.5f, 125));
}

TEST(FakeQuantizeLayer, PassesTheGradientInsideItsRange) {
  Trial trial = quantized({.scale = 0.5f, .zero_point = 3}, {-66, -65.6f, -65, 0.2f, 62.1f, 62.4f});
  const std::vector<float> outputs = trial.predict();
  // The gradient of the mean of six squares is 1 where the difference is 3.
  for (std::size_t i = 0; i < outputs.size(); ++i) trial.targets()[i] = outputs[i] - 3;
  trial.train();
  EXPECT_THAT(trial.gradient("shift/offset"), ElementsAre(0, 1, 1, 1, 1, 0));
}

TEST(FakeQuantizeLayer, RoundsValuesOfBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Network network({4});
  network.add(FakeQuantize({.scale = 0.5f}));
  Trial trial(std::move(network), 1, 1, Precision::bfloat16);
  trial.features() = {-70, -0.75f, 0.625f, 70};
  EXPECT_THAT(trial.predict(), ElementsAre(-64, -1, 0.5f, 63.5f));
}

TEST(FakeQuantizeLayer, RefusesScalesAndZeroPointsOutsideTheirRanges) {
  const auto message = [](const FakeQuantizeFunction& function) {
    return input_error_of([&] { Network({4}).add(FakeQuantize(function)); });
  };
  const std::string where = "[layer fake_quantize (fake_quantize)] ";
  EXPECT_EQ(message({.scale = 0}), where + "expected a scale above 0, got 0");
  EXPECT_EQ(message({.scale = -1}), where + "expected a scale above 0, got -1");
  EXPECT_EQ(message({.scale = NAN}), where + "expected a scale above 0, got nan");
  EXPECT_EQ(message({.scale = INFINITY}), where + "expected a scale above 0, got inf");
  EXPECT_EQ(message({.zero_point = 128}),
            where + "expected a zero_point from -128 to 127, got 128");
  EXPECT_EQ(message({.zero_point = -1, .dtype = Int8Type::uint8}),
            where + "expected a zero_point from 0 to 255, got -1");
}

TEST(FlattenLayer, RenamesTheShapeAndKeepsTheOrder) {
  Network network({2, 3, 2});
  network.add(Flatten());
  ASSERT_EQ(network.output_shape(), Shape({12}));
  Trial trial(std::move(network), 2);
  EXPECT_EQ(trial.predict(), trial.features());
}

TEST(FlattenLayer, PassesGradientsThrough) {
  Network network({2, 3, 2});
  network.add(Shift());
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(network);
}

TEST(AddLayer, SumsAllItsInputs) {
  Network network({5});
  const NodeId first = network.add(Shift());
  const NodeId second = network.add(Shift(), {kInput});
  network.add(Add(), {first, second, kInput});
  Trial trial(network, 2);
  const std::vector<float> outputs = trial.predict();
  for (std::size_t i = 0; i < outputs.size(); ++i)
    EXPECT_NEAR(outputs[i],
                3 * trial.features()[i] + trial.parameter("shift/offset")[i % 5] +
                    trial.parameter("shift_1/offset")[i % 5],
                1e-6f);
  expect_gradients_match_differences(network);
}

TEST(AddLayer, AcceptsTheSameInputTwice) {
  Network network({5});
  const NodeId shifted = network.add(Shift());
  network.add(Add(), {shifted, shifted});
  expect_gradients_match_differences(network);
}

TEST(AddLayer, MayBeFollowedByAReLU) {
  Network network({5});
  const NodeId first = network.add(Shift());
  const NodeId second = network.add(Dense({.units = 5}), {first}, "dense");
  network.add(Add(), {second, first});
  network.add(ReLU());
  Trial trial(network, 3);
  for (const float output : trial.predict()) EXPECT_GE(output, 0);
  expect_gradients_match_differences(network, {.step = 1e-3f});
}

TEST(AddLayer, RefusesShapesThatDiffer) {
  Network network({2, 2, 3});
  const NodeId flat = network.add(Flatten());
  EXPECT_EQ(input_error_of([&] {
              network.add(Add(), {flat, kInput});
            }),
            "[layer add (add)] expected inputs of one shape, got [12] and [2, 2, 3]");
  EXPECT_EQ(input_error_of([&] { network.add(Add()); }),
            "[layer add (add)] expected two inputs or more, got 1");
}

TEST(MultiplyLayer, MultipliesAllItsInputs) {
  Network network({5});
  const NodeId first = network.add(Shift());
  const NodeId second = network.add(Shift(), {kInput});
  network.add(Multiply(), {first, second, kInput});
  Trial trial(network, 2);
  const std::vector<float> outputs = trial.predict();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const float x = trial.features()[i];
    EXPECT_NEAR(outputs[i],
                x * (x + trial.parameter("shift/offset")[i % 5]) *
                    (x + trial.parameter("shift_1/offset")[i % 5]),
                1e-5f);
  }
  expect_gradients_match_differences(network);
}

TEST(MultiplyLayer, AcceptsTheSameInputTwice) {
  Network network({5});
  const NodeId shifted = network.add(Shift());
  network.add(Multiply(), {shifted, shifted, shifted});
  expect_gradients_match_differences(network);
}

TEST(MultiplyLayer, RefusesShapesThatDiffer) {
  Network network({2, 2, 3});
  const NodeId flat = network.add(Flatten());
  EXPECT_EQ(input_error_of([&] {
              network.add(Multiply(), {flat, kInput});
            }),
            "[layer multiply (multiply)] expected inputs of one shape, or one with the extent 1 "
            "along neighboring axes, got [12] and [2, 2, 3]");
}

TEST(MultiplyLayer, RepeatsTheSmallerInput) {
  const auto broadcast = [](const Shape& a, const Shape& b) {
    const auto found = broadcast_of(a, b, 2);
    return found ? std::vector<std::int64_t>{found->outer, found->repeats, found->inner,
                                             static_cast<std::int64_t>(found->larger_input)}
                 : std::vector<std::int64_t>{};
  };
  EXPECT_THAT(broadcast({4, 5, 3}, {1, 1, 3}), ElementsAre(2, 20, 3, 0));
  EXPECT_THAT(broadcast({4, 1, 1}, {4, 5, 3}), ElementsAre(8, 15, 1, 1));
  EXPECT_THAT(broadcast({4, 5, 3}, {4, 1, 3}), ElementsAre(8, 5, 3, 0));
  EXPECT_THAT(broadcast({1, 5, 1, 3}, {1, 1, 1, 3}), ElementsAre(2, 5, 3, 0));
  EXPECT_THAT(broadcast({4, 5}, {4, 5}), ElementsAre(40, 1, 1, 0));
  EXPECT_THAT(broadcast({4, 5, 3}, {1, 5, 1}), ElementsAre());  // would need two loops
  EXPECT_THAT(broadcast({4, 5, 3}, {1, 5, 2}), ElementsAre());
  EXPECT_THAT(broadcast({4, 1}, {1, 4}), ElementsAre());
}

TEST(SoftmaxLayer, ComputesProbabilities) {
  Network network({3});
  network.add(Softmax());
  Trial trial(std::move(network), 2);
  trial.features() = {0, std::log(2.0f), std::log(5.0f), 1000, 1000, -1000};
  EXPECT_THAT(trial.predict(),
              Pointwise(FloatNear(1e-6f), {0.125f, 0.25f, 0.625f, 0.5f, 0.5f, 0.0f}));
}

TEST(SoftmaxLayer, HasTheGradientsOfItsInput) {
  Network network({5});
  network.add(Shift());
  network.add(Softmax());
  expect_gradients_match_differences(network, {.step = 1e-2f, .floor = 0.02});
}

// The output of dropout for ones: 0 or 1 / (1 - rate).
struct DropoutTrial {
  std::shared_ptr<Recording> seen = std::make_shared<Recording>();
  Trial trial;

  DropoutTrial(std::int64_t samples, std::int64_t features, float rate = 0.25f,
               const std::string& name = "drop")
      : trial(network(features, rate, name), samples) {
    std::ranges::fill(trial.features(), 1.0f);
    std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
  }
  Network network(std::int64_t features, float rate, const std::string& name) const {
    Network result({features});
    result.add(Shift());
    result.add(Dropout({.rate = rate}), {result.last()}, name);
    result.add(Probe(seen));
    return result;
  }
  std::vector<float> mask(const StepContext& context) {
    trial.train(context);
    return seen->values;
  }
};

TEST(DropoutLayer, DropsItsRateAndScalesTheRest) {
  DropoutTrial dropout(20, 1000);
  const auto mask = dropout.mask({.seed = 7, .step = 3});
  const auto dropped = std::ranges::count(mask, 0.0f);
  EXPECT_EQ(static_cast<std::size_t>(dropped + std::ranges::count(mask, 1 / 0.75f)), mask.size());
  EXPECT_NEAR(static_cast<double>(dropped) / 20'000, 0.25, 5 * std::sqrt(0.25 * 0.75 / 20'000));
}

TEST(DropoutLayer, IsAPureFunctionOfSeedStepLayerAndSample) {
  const StepContext context{.seed = 7, .step = 3};
  const auto mask = DropoutTrial(4, 50).mask(context);
  EXPECT_EQ(DropoutTrial(4, 50).mask(context), mask);
  EXPECT_NE(DropoutTrial(4, 50).mask({.seed = 8, .step = 3}), mask);
  EXPECT_NE(DropoutTrial(4, 50).mask({.seed = 7, .step = 4}), mask);
  EXPECT_NE(DropoutTrial(4, 50, 0.25f, "other").mask(context), mask);
  const std::set<std::vector<float>> sample_masks = {{mask.begin(), mask.begin() + 50},
                                                     {mask.begin() + 50, mask.begin() + 100},
                                                     {mask.begin() + 100, mask.begin() + 150}};
  EXPECT_EQ(sample_masks.size(), 3u) << "each sample has its own mask";
}

TEST(DropoutLayer, IsTheSameForABatchInParts) {
  const auto whole =
      DropoutTrial(5, 30).mask({.seed = 7, .step = 3, .first_sample = 10, .global_samples = 20});
  auto parts =
      DropoutTrial(3, 30).mask({.seed = 7, .step = 3, .first_sample = 10, .global_samples = 20});
  const auto second =
      DropoutTrial(2, 30).mask({.seed = 7, .step = 3, .first_sample = 13, .global_samples = 20});
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, whole);
}

TEST(DropoutLayer, HasNoGradientForDroppedElements) {
  DropoutTrial dropout(1, 40);
  const auto mask = dropout.mask({.seed = 7, .step = 3});
  const auto gradient = dropout.trial.gradient("shift/offset");
  for (std::size_t i = 0; i < mask.size(); ++i)
    EXPECT_FLOAT_EQ(gradient[i], mask[i] * dropout.seen->gradient[i]) << i;
}

TEST(DropoutLayer, DoesNothingInInferenceOrAtRateZero) {
  DropoutTrial dropout(2, 10);
  EXPECT_EQ(dropout.trial.predict(), dropout.trial.features());
  DropoutTrial none(2, 10, 0);
  EXPECT_EQ(none.mask({.seed = 7}), none.trial.features());
}

TEST(DropoutLayer, RefusesARateOutsideItsRange) {
  EXPECT_EQ(input_error_of([] { Network({4}).add(Dropout({.rate = 1})); }),
            "[layer dropout (dropout)] expected a rate in [0, 1), got 1");
  EXPECT_EQ(input_error_of([] { Network({4}).add(Dropout({.rate = -0.5f})); }),
            "[layer dropout (dropout)] expected a rate in [0, 1), got -0.5");
}

}  // namespace
}  // namespace lockstep::inline v0::model
