// MatMul where extents are 1, which its reference (layer_reference_test.cpp) does not have.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

/// [m, k] times [k, n], or times the transpose of [n, k].
struct Product {
  std::int64_t m, k, n;
  bool transpose_b;

  /// The network that computes it, from two linear functions of its input.
  Network network() const {
    Network network({5});
    const auto factor = [&](std::int64_t rows, std::int64_t columns, const std::string& name) {
      network.add(Dense({.units = rows * columns}), {kInput}, name);
      return network.add(Reshape({.shape = {rows, columns}}));
    };
    const NodeId left = factor(m, k, "left");
    const NodeId right = transpose_b ? factor(n, k, "right") : factor(k, n, "right");
    network.add(MatMul({.transpose_b = transpose_b}), {left, right});
    return network;
  }
  /// The index of an element of the second factor.
  std::size_t right(std::int64_t inner, std::int64_t column) const {
    return static_cast<std::size_t>(transpose_b ? column * k + inner : inner * n + column);
  }
};

/// The elements of a factor, in double.
std::vector<double> factor_of(Trial& trial, const std::string& name, std::size_t sample) {
  const std::span<const float> kernel = trial.parameter(name + "/kernel");
  std::vector<double> elements;
  for (const float bias : trial.parameter(name + "/bias")) {
    double sum = bias;
    for (std::size_t i = 0; i < 5; ++i)
      sum += double{kernel[elements.size() * 5 + i]} * double{trial.features()[sample * 5 + i]};
    elements.push_back(sum);
  }
  return elements;
}

class MatMulExtents : public ::testing::TestWithParam<Product> {};

TEST_P(MatMulExtents, MayBeOne) {
  const Product product = GetParam();
  constexpr std::int64_t kSamples = 3;
  Trial trial(product.network(), kSamples);
  const std::vector<float> predicted = trial.predict();
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto left = factor_of(trial, "left", static_cast<std::size_t>(sample));
    const auto right = factor_of(trial, "right", static_cast<std::size_t>(sample));
    for (std::int64_t row = 0; row < product.m; ++row)
      for (std::int64_t column = 0; column < product.n; ++column) {
        double sum = 0;
        for (std::int64_t inner = 0; inner < product.k; ++inner)
          sum += left[static_cast<std::size_t>(row * product.k + inner)] *
                 right[product.right(inner, column)];
        EXPECT_NEAR(
            predicted[static_cast<std::size_t>((sample * product.m + row) * product.n + column)],
            sum, 1e-5);
      }
  }
  Network ended = product.network();
  ended.add(Flatten());
  ended.add(Dense({.units = 2}));
  expect_gradients_match_differences(ended);
}

std::vector<Product> products() {
  std::vector<Product> all;
  for (const std::int64_t m : {1, 3})
    for (const std::int64_t k : {1, 2})
      for (const std::int64_t n : {1, 4})
        for (const bool transpose_b : {false, true}) all.push_back({m, k, n, transpose_b});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Extents, MatMulExtents, ::testing::ValuesIn(products()),
                         [](const auto& one) {
                           return "m" + std::to_string(one.param.m) + "_k" +
                                  std::to_string(one.param.k) + "_n" + std::to_string(one.param.n) +
                                  (one.param.transpose_b ? "_transposed" : "");
                         });

}  // namespace
}  // namespace lockstep::inline v0::model
