#include "lockstep/model/layers/conv_2d/conv_2d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/model/layers/conv_2d/derived.h"
#include "lockstep/model/layers/elementwise/elementwise.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

struct ConvolutionCase {
  const char* name;
  Shape input;
  Conv2D::Options options;
};

std::ostream& operator<<(std::ostream& out, const ConvolutionCase& test) {
  return out << test.name;
}
std::string name_of_convolution(const ::testing::TestParamInfo<ConvolutionCase>& info) {
  return info.param.name;
}

// The sum of the definition, element by element.
std::vector<float> by_definition(const ConvolutionCase& c, Trial& trial) {
  const Shape& input = c.input;
  const WindowGeometry w =
      window_geometry(input, c.options.kernel, c.options.strides, c.options.padding);
  const auto kernel = trial.parameter("conv2d/kernel");
  const std::int64_t group_inputs = w.channels / c.options.groups;
  const std::int64_t group_filters = c.options.filters / c.options.groups;
  std::vector<float> result;
  for (std::int64_t n = 0; n < trial.samples(); ++n)
    for (std::int64_t y = 0; y < w.output_height; ++y)
      for (std::int64_t x = 0; x < w.output_width; ++x)
        for (std::int64_t o = 0; o < c.options.filters; ++o) {
          double sum =
              c.options.use_bias
                  ? static_cast<double>(trial.parameter("conv2d/bias")[static_cast<std::size_t>(o)])
                  : 0;
          for (std::int64_t ky = 0; ky < w.kernel_height; ++ky)
            for (std::int64_t kx = 0; kx < w.kernel_width; ++kx) {
              const std::int64_t row = y * w.stride_height - w.pad_top + ky;
              const std::int64_t column = x * w.stride_width - w.pad_left + kx;
              if (row < 0 || row >= w.height || column < 0 || column >= w.width) continue;
              for (std::int64_t i = 0; i < group_inputs; ++i) {
                const std::int64_t channel = o / group_filters * group_inputs + i;
                const auto pixel = static_cast<std::size_t>(
                    ((n * w.height + row) * w.width + column) * w.channels + channel);
                const auto weight = static_cast<std::size_t>(
                    ((o * w.kernel_height + ky) * w.kernel_width + kx) * group_inputs + i);
                sum += static_cast<double>(trial.features()[pixel]) *
                       static_cast<double>(kernel[weight]);
              }
            }
          result.push_back(static_cast<float>(sum));
        }
  return result;
}

class Convolution : public ::testing::TestWithParam<ConvolutionCase> {};

TEST_P(Convolution, MatchesTheDefinitionInTrainingAndInference) {
  const ConvolutionCase& c = GetParam();
  const auto seen = std::make_shared<Recording>();
  Network network(c.input);
  network.add(Conv2D(c.options));
  network.add(Probe(seen));
  Trial trial(std::move(network), 2);
  const std::vector<float> expected = by_definition(c, trial);
  trial.train();
  EXPECT_THAT(seen->values, Pointwise(FloatNear(2e-5f), expected));
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(2e-5f), expected));
}

TEST_P(Convolution, HasTheGradientsOfItsInputKernelAndBias) {
  const ConvolutionCase& c = GetParam();
  Network network(c.input);
  network.add(Shift());
  network.add(Conv2D(c.options));
  expect_gradients_match_differences(network);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Convolution,
    ::testing::Values(
        ConvolutionCase{"valid", {6, 5, 3}, {.filters = 4, .kernel = 3}},
        ConvolutionCase{"same", {6, 5, 3}, {.filters = 4, .kernel = 3, .padding = Padding::same}},
        ConvolutionCase{"one_by_one", {4, 4, 5}, {.filters = 7, .kernel = 1}},
        ConvolutionCase{"even_kernel_same",
                        {5, 6, 2},
                        {.filters = 3, .kernel = {2, 4}, .padding = Padding::same}},
        ConvolutionCase{"strided_same",
                        {7, 8, 2},
                        {.filters = 3, .kernel = 3, .strides = 2, .padding = Padding::same}},
        ConvolutionCase{"strided_symmetric",
                        {8, 7, 2},
                        {.filters = 3, .kernel = 3, .strides = 2, .padding = Padding::symmetric}},
        ConvolutionCase{"stride_above_kernel",
                        {7, 7, 3},
                        {.filters = 2, .kernel = 1, .strides = 2, .padding = Padding::symmetric}},
        ConvolutionCase{"strided_pixels", {8, 6, 3}, {.filters = 5, .kernel = 1, .strides = 2}},
        ConvolutionCase{
            "unequal_strides", {7, 6, 2}, {.filters = 3, .kernel = {3, 2}, .strides = {2, 1}}},
        ConvolutionCase{"large_kernel",
                        {11, 11, 3},
                        {.filters = 4, .kernel = 7, .strides = 2, .padding = Padding::symmetric}},
        ConvolutionCase{"groups",
                        {5, 5, 6},
                        {.filters = 4, .kernel = 3, .padding = Padding::same, .groups = 2}},
        ConvolutionCase{"depthwise",
                        {5, 5, 4},
                        {.filters = 4, .kernel = 3, .padding = Padding::same, .groups = 4}},
        ConvolutionCase{"depthwise_twice", {5, 5, 3}, {.filters = 6, .kernel = 3, .groups = 3}},
        ConvolutionCase{"without_bias", {5, 5, 3}, {.filters = 4, .kernel = 3, .use_bias = false}},
        ConvolutionCase{
            "winograd", {20, 19, 16}, {.filters = 16, .kernel = 3, .padding = Padding::same}},
        ConvolutionCase{
            "winograd_without_bias", {22, 21, 16}, {.filters = 16, .kernel = 3, .use_bias = false}},
        ConvolutionCase{
            "whole_vectors", {6, 6, 16}, {.filters = 32, .kernel = 3, .padding = Padding::same}},
        ConvolutionCase{"whole_vectors_and_groups",
                        {4, 4, 32},
                        {.filters = 32, .kernel = 3, .padding = Padding::same, .groups = 2}},
        ConvolutionCase{"one_channel", {8, 8, 1}, {.filters = 32, .kernel = 3}}),
    name_of_convolution);

TEST(Conv2DWithReLU, EqualsTheTwoLayers) {
  Network fused({6, 6, 3});
  fused.add(Shift());
  fused.add(Conv2D({.filters = 5, .kernel = 3}));
  fused.add(ReLU());
  Network apart({6, 6, 3});
  apart.add(Shift());
  apart.add(Conv2D({.filters = 5, .kernel = 3}));
  apart.add(Probe(std::make_shared<Recording>()));  // prevents fusion of the two
  apart.add(ReLU());
  Trial one(std::move(fused), 3);
  Trial two(std::move(apart), 3);
  EXPECT_EQ(one.train().loss_sum, two.train().loss_sum);
  for (const char* name : {"shift/offset", "conv2d/kernel", "conv2d/bias"})
    EXPECT_THAT(one.gradient(name),
                Pointwise(FloatNear(1e-6f),
                          std::vector<float>(two.gradient(name).begin(), two.gradient(name).end())))
        << name;
  EXPECT_THAT(one.predict(), Pointwise(FloatNear(1e-6f), two.predict()));
}

TEST(Conv2D, DeclaresItsParameters) {
  Network network({8, 8, 6});
  network.add(Conv2D({.filters = 4, .kernel = {3, 5}, .groups = 2}));
  const ParameterInfo& kernel = *network.parameters().find("conv2d/kernel");
  EXPECT_EQ(kernel.shape, Shape({4, 3, 5, 3}));
  EXPECT_TRUE(kernel.decay);
  EXPECT_EQ(kernel.initializer.fan_in, 3 * 5 * 3);
  EXPECT_EQ(kernel.initializer.fan_out, 3 * 5 * 2);
  const ParameterInfo& bias = *network.parameters().find("conv2d/bias");
  EXPECT_EQ(bias.shape, Shape({4}));
  EXPECT_FALSE(bias.decay);
}

TEST(Conv2D, RefusesInvalidOptions) {
  const auto refusal = [](Shape input, const Conv2D::Options& options) {
    return input_error_of([&] { Network(std::move(input)).add(Conv2D(options)); });
  };
  EXPECT_EQ(refusal({8, 8, 3}, {.filters = 0}),
            "[layer conv2d (conv2d)] expected at least one filter, got 0");
  EXPECT_EQ(refusal({8, 8, 3}, {.filters = 4, .groups = 2}),
            "[layer conv2d (conv2d)] expected groups that divide channels and filters, got 2 "
            "groups, 3 channels, 4 filters");
  EXPECT_EQ(refusal({64}, {.filters = 4}),
            "[layer conv2d (conv2d)] expected an input [height, width, channels], got [64]");
  EXPECT_EQ(refusal({2, 2, 3}, {.filters = 4}),
            "[layer conv2d (conv2d)] expected an image of at least 3x3, got [2, 2, 3]");
}

// Compares predictions and gradients of the two networks, which have equal parameters.
void expect_same_numbers(Network network, Network reference) {
  Trial trial(std::move(network), 2);
  Trial expected(std::move(reference), 2);
  EXPECT_EQ(trial.predict(), expected.predict());
  trial.train();
  expected.train();
  const auto entries = trial.network().parameters().entries();
  const auto expected_entries = expected.network().parameters().entries();
  ASSERT_EQ(entries.size(), expected_entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto values = expected.gradient(expected_entries[i].name);
    EXPECT_THAT(trial.gradient(entries[i].name),
                ::testing::ElementsAreArray(values.begin(), values.end()));
  }
}

struct TransposeCase {
  const char* name;
  Shape input;
  Conv2DTranspose::Options options;
  Shape output;
};

std::ostream& operator<<(std::ostream& out, const TransposeCase& test) { return out << test.name; }

// Each input pixel times the kernel, added to its window.
std::vector<float> scattered(const TransposeCase& c, Trial& trial) {
  const auto [kernel_height, kernel_width] = c.options.kernel;
  const auto zeros_before = [&](std::int64_t kernel, std::int64_t stride) {
    return c.options.padding == Padding::same ? std::max<std::int64_t>(kernel - stride, 0) / 2
           : c.options.padding == Padding::symmetric ? kernel / 2
                                                     : 0;
  };
  const std::int64_t top = zeros_before(kernel_height, c.options.strides.height);
  const std::int64_t left = zeros_before(kernel_width, c.options.strides.width);
  const std::int64_t filters = c.options.filters;
  const auto kernel = trial.parameter("conv2d_transpose/kernel");
  std::vector<double> sums(static_cast<std::size_t>(trial.samples() * element_count(c.output)));
  if (c.options.use_bias)
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = static_cast<double>(
          trial.parameter("conv2d_transpose/bias")[i % static_cast<std::size_t>(filters)]);
  auto pixel = trial.features().begin();
  for (std::int64_t n = 0; n < trial.samples(); ++n)
    for (std::int64_t y = 0; y < c.input[0]; ++y)
      for (std::int64_t x = 0; x < c.input[1]; ++x, pixel += c.input[2])
        for (std::int64_t ky = 0; ky < kernel_height; ++ky)
          for (std::int64_t kx = 0; kx < kernel_width; ++kx) {
            const std::int64_t row = y * c.options.strides.height + ky - top;
            const std::int64_t column = x * c.options.strides.width + kx - left;
            if (row < 0 || row >= c.output[0] || column < 0 || column >= c.output[1]) continue;
            for (std::int64_t i = 0; i < c.input[2]; ++i)
              for (std::int64_t o = 0; o < filters; ++o)
                sums[static_cast<std::size_t>(
                    ((n * c.output[0] + row) * c.output[1] + column) * filters + o)] +=
                    static_cast<double>(pixel[i]) *
                    static_cast<double>(kernel[static_cast<std::size_t>(
                        ((i * kernel_height + ky) * kernel_width + kx) * filters + o)]);
          }
  std::vector<float> rounded;
  for (const double sum : sums) rounded.push_back(static_cast<float>(sum));
  return rounded;
}

class TransposedConvolution : public ::testing::TestWithParam<TransposeCase> {};

TEST_P(TransposedConvolution, MatchesTheDefinitionAndItsGradients) {
  const TransposeCase& c = GetParam();
  const auto seen = std::make_shared<Recording>();
  Network network(c.input);
  network.add(Conv2DTranspose(c.options));
  EXPECT_EQ(network.output_shape(), c.output);
  network.add(Probe(seen));
  Trial trial(std::move(network), 2);
  const std::vector<float> expected = scattered(c, trial);
  trial.train();
  EXPECT_THAT(seen->values, Pointwise(FloatNear(2e-5f), expected));
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(2e-5f), expected));
  Network shifted(c.input);
  shifted.add(Shift());
  shifted.add(Conv2DTranspose(c.options));
  expect_gradients_match_differences(std::move(shifted));
}

// The shapes are those of Keras; of symmetric padding, those of PyTorch.
INSTANTIATE_TEST_SUITE_P(
    Kinds, TransposedConvolution,
    ::testing::Values(
        TransposeCase{"valid", {3, 4, 3}, {.filters = 4, .kernel = 3}, {5, 6, 4}},
        TransposeCase{"strided_valid", {3, 2, 2}, {.filters = 3, .strides = 2}, {7, 5, 3}},
        TransposeCase{"strided_pixels",
                      {4, 3, 5},
                      {.filters = 3, .kernel = 1, .strides = 2, .padding = Padding::same},
                      {8, 6, 3}},
        TransposeCase{"stride_above_kernel",
                      {3, 2, 2},
                      {.filters = 3, .kernel = 2, .strides = {3, 2}},
                      {9, 4, 3}},
        TransposeCase{"strided_same",
                      {3, 4, 2},
                      {.filters = 3, .kernel = {4, 3}, .strides = 2, .padding = Padding::same},
                      {6, 8, 3}},
        TransposeCase{"symmetric_without_bias",
                      {3, 4, 2},
                      {.filters = 3,
                       .kernel = 3,
                       .strides = 2,
                       .padding = Padding::symmetric,
                       .use_bias = false},
                      {5, 7, 3}},
        TransposeCase{"whole_vectors",
                      {3, 3, 16},
                      {.filters = 32, .kernel = 3, .padding = Padding::same},
                      {3, 3, 32}}),
    [](const auto& test) { return test.param.name; });

TEST(DerivedConvolutions, AreConvolutionsOfImages) {
  Network depthwise({5, 6, 2});
  depthwise.add(DepthwiseConv2D({.kernel = {3, 2}, .strides = 2, .depth_multiplier = 3}));
  EXPECT_EQ(depthwise.parameters().entries()[0].shape, Shape({6, 3, 2, 1}));
  Network grouped({5, 6, 2});
  grouped.add(Conv2D({.filters = 6, .kernel = {3, 2}, .strides = 2, .groups = 2}));
  expect_same_numbers(std::move(depthwise), std::move(grouped));

  Network row({7, 4});
  row.add(Conv1D({.filters = 6, .kernel = 3, .strides = 2, .padding = Padding::same, .groups = 2}));
  EXPECT_EQ(row.output_shape(), Shape({4, 6}));
  EXPECT_EQ(row.parameters().entries()[0].shape, Shape({6, 3, 2}));
  Network image({1, 7, 4});
  image.add(Conv2D(
      {.filters = 6, .kernel = {1, 3}, .strides = {1, 2}, .padding = Padding::same, .groups = 2}));
  expect_same_numbers(std::move(row), std::move(image));
}

TEST(DerivedConvolutions, CheckTheirInput) {
  EXPECT_EQ(input_error_of([] { Network({8}).add(Conv1D({.filters = 2})); }),
            "[layer conv1d (conv1d)] expected an input [steps, channels], got [8]");
  EXPECT_EQ(input_error_of([] { Network({8}).add(DepthwiseConv2D()); }),
            "[layer depthwise_conv2d (depthwise_conv2d)] expected an input [height, width, "
            "channels], got [8]");
  EXPECT_EQ(input_error_of([] {
              Network({1, 1, 3}).add(
                  Conv2DTranspose({.filters = 2, .kernel = 4, .padding = Padding::symmetric}));
            }),
            "[layer conv2d_transpose (conv2d_transpose)] expected an output of at least 1x1, got "
            "[0, 0, 2]");
}

}  // namespace
}  // namespace lockstep::inline v0::model
