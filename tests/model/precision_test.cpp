#include "lockstep/model/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

TEST(Precision, IsReadByName) {
  for (const Precision precision : {Precision::float32, Precision::bfloat16, Precision::float16})
    EXPECT_EQ(parse_name<Precision>("precision", to_string(precision)), precision);
  EXPECT_EQ(
      input_error_of([] { parse_name<Precision>("precision", "bfloat"); }),
      "[precision] expected float32, bfloat16 or float16, got \"bfloat\" (did you mean bfloat16?)");
}

TEST(Precision, Float16RequiresAGpu) {
  EXPECT_EQ(
      input_error_of([] { make_backend(device::Device{}, {.precision = Precision::float16}); }),
      "[precision] expected a GPU for float16, got cpu:0; use bfloat16 or float32");
}

struct PrecisionCase {
  std::string name;
  Network (*make)();
};

Network small_image_network() {
  Network network({7, 5, 3});
  network.add(Conv2D({.filters = 6, .kernel = 3, .padding = Padding::same}));
  return network;
}

const PrecisionCase kPrecisionCases[] = {
    {"dense",
     [] {
       Network network({9});
       network.add(Dense({.units = 7}));
       network.add(ReLU());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"convolution",
     [] {
       Network network = small_image_network();
       network.add(ReLU());
       network.add(Conv2D({.filters = 4, .kernel = 3, .strides = 2, .groups = 2}));
       network.add(Flatten());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"pooling",
     [] {
       Network network = small_image_network();
       network.add(MaxPool2D({.pool = 2}));
       network.add(AveragePool2D({.pool = 2, .strides = 1}));
       network.add(GlobalAveragePooling2D());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"batch_normalization",
     [] {
       Network network = small_image_network();
       network.add(BatchNormalization());
       network.add(ReLU());
       network.add(GlobalAveragePooling2D());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"residual",
     [] {
       Network network = small_image_network();
       const NodeId first = network.last();
       network.add(Conv2D({.filters = 6, .kernel = 3, .padding = Padding::same}));
       network.add(Add(), {network.last(), first});
       network.add(ReLU());
       network.add(GlobalAveragePooling2D());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"dropout_and_softmax",
     [] {
       Network network({9});
       network.add(Dense({.units = 12}));
       network.add(Dropout({.rate = 0.25f}));
       network.add(Dense({.units = 3}));
       network.add(Softmax());
       return network;
     }},
    {"pixels",  // with fewer channels than a vector has elements, and an odd number of filters
     [] {
       Network network({12, 20, 3});
       network.add(Conv2D({.filters = 14, .kernel = 1, .strides = 2}));
       network.add(Conv2D({.filters = 7, .kernel = 1}));
       network.add(Flatten());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"functions_and_sums",
     [] {
       Network network({9});
       const NodeId first = network.add(Dense({.units = 600}));  // more than a block
       const NodeId second = network.add(GELU({.approximate = true}));
       network.add(LeakyReLU());
       network.add(Add(), {network.last(), first, second});
       network.add(Multiply(), {network.add(Sigmoid()), second});
       network.add(GELU());
       network.add(Dense({.units = 3}));
       return network;
     }},
    {"transformer",
     [] {
       Network network({6, 8});
       const NodeId rows = network.add(PositionalEmbedding());
       network.add(LayerNormalization());
       network.add(Dense({.units = 24}));  // queries, keys and values
       network.add(Attention({.heads = 2, .causal = true}));
       network.add(Add(), {network.last(), rows});
       network.add(RMSNormalization());
       network.add(GlobalAveragePooling1D());
       network.add(Dense({.units = 3}));
       return network;
     }},
};

double norm(std::span<const float> values) {
  return std::sqrt(std::accumulate(values.begin(), values.end(), 0.0, [](double sum, float v) {
    return sum + static_cast<double>(v) * static_cast<double>(v);
  }));
}

double distance(std::span<const float> a, std::span<const float> b) {
  std::vector<float> difference(a.begin(), a.end());
  for (std::size_t i = 0; i < b.size(); ++i) difference[i] -= b[i];
  return norm(difference);
}

class Bfloat16 : public testing::TestWithParam<PrecisionCase> {
 protected:
  void SetUp() override {
    if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  }
};

// 8 bits of precision: each rounding is off by up to 1/256, and several follow each other.
TEST_P(Bfloat16, IsCloseToFloat32) {
  constexpr double kTolerance = 0.03;
  constexpr std::int64_t kSamples = 5;
  Trial exact(GetParam().make(), kSamples);
  Trial narrow(GetParam().make(), kSamples, 1, Precision::bfloat16);
  const MetricSums expected = exact.train();
  const MetricSums sums = narrow.train();
  EXPECT_NEAR(sums.loss_sum, expected.loss_sum, kTolerance * std::abs(expected.loss_sum));
  for (const ParameterInfo& entry : exact.network().parameters().entries()) {
    const auto reference = exact.gradient(entry.name);
    EXPECT_LE(distance(narrow.gradient(entry.name), reference),
              kTolerance * norm(exact.model().gradients()))
        << entry.name;
  }
  for (const ParameterInfo& entry : exact.network().buffers().entries())
    EXPECT_LE(distance(narrow.buffer(entry.name), exact.buffer(entry.name)),
              kTolerance * norm(exact.buffer(entry.name)))
        << entry.name;
  const std::vector<float> outputs = exact.predict();
  EXPECT_LE(distance(narrow.predict(), outputs), kTolerance * norm(outputs));
}

TEST_P(Bfloat16, RoundsItsResults) {
  Trial exact(GetParam().make(), 3);
  Trial narrow(GetParam().make(), 3, 1, Precision::bfloat16);
  exact.train();
  narrow.train();
  EXPECT_FALSE(std::ranges::equal(exact.model().gradients(), narrow.model().gradients()))
      << "the same bits: nothing was computed in 16 bits";
}

TEST_P(Bfloat16, IsBitReproducible) {
  Trial first(GetParam().make(), 4, 2, Precision::bfloat16);
  Trial second(GetParam().make(), 4, 2, Precision::bfloat16);
  first.train();
  second.train();
  EXPECT_TRUE(std::ranges::equal(first.model().gradients(), second.model().gradients()));
}

INSTANTIATE_TEST_SUITE_P(Layers, Bfloat16, testing::ValuesIn(kPrecisionCases),
                         [](const auto& test) { return test.param.name; });

TEST(Bfloat16Weights, FollowTheParameters) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Trial trial(zoo::mlp({4}, 3), 2, 1, Precision::bfloat16);
  std::ranges::fill(trial.model().parameters(), 1.0f / 3);
  trial.model().parameters_changed();
  const auto weights = trial.model().weights().as<BFloat16>();
  EXPECT_EQ(weights.front().bits, 0x3eab) << "1/3, rounded to 8 bits";
}

TEST(Bfloat16LossScale, MultipliesGradients) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Trial plain(zoo::mlp({4}, 3), 2, 1, Precision::bfloat16);
  Trial scaled(zoo::mlp({4}, 3), 2, 1, Precision::bfloat16);
  plain.train();
  scaled.train({.loss_scale = 1024});
  for (std::size_t i = 0; i < plain.model().gradients().size(); ++i)
    EXPECT_EQ(scaled.model().gradients()[i], 1024 * plain.model().gradients()[i]) << i;
}

}  // namespace
}  // namespace lockstep::inline v0::model
