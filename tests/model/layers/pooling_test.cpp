#include "lockstep/model/layers/pooling/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

struct PoolingCase {
  const char* name;
  Shape input;
  PoolOptions options;
};

std::ostream& operator<<(std::ostream& out, const PoolingCase& test) { return out << test.name; }
std::string name_of_pooling(const ::testing::TestParamInfo<PoolingCase>& info) {
  return info.param.name;
}

struct Pooled {
  std::vector<float> largest;
  std::vector<float> mean;
};

// Pools the elements of each window that are inside the image.
Pooled by_definition(const PoolingCase& c, Trial& trial) {
  const WindowGeometry w = window_geometry(
      c.input, c.options.pool, c.options.strides.value_or(c.options.pool), c.options.padding);
  Pooled result;
  for (std::int64_t n = 0; n < trial.samples(); ++n)
    for (std::int64_t y = 0; y < w.output_height; ++y)
      for (std::int64_t x = 0; x < w.output_width; ++x)
        for (std::int64_t channel = 0; channel < w.channels; ++channel) {
          float largest = -std::numeric_limits<float>::infinity();
          double sum = 0;
          int count = 0;
          for (std::int64_t ky = 0; ky < w.kernel_height; ++ky)
            for (std::int64_t kx = 0; kx < w.kernel_width; ++kx) {
              const std::int64_t row = y * w.stride_height - w.pad_top + ky;
              const std::int64_t column = x * w.stride_width - w.pad_left + kx;
              if (row < 0 || row >= w.height || column < 0 || column >= w.width) continue;
              const float pixel = trial.features()[static_cast<std::size_t>(
                  ((n * w.height + row) * w.width + column) * w.channels + channel)];
              largest = std::max(largest, pixel);
              sum += static_cast<double>(pixel);
              ++count;
            }
          result.largest.push_back(largest);
          result.mean.push_back(static_cast<float>(sum / count));
        }
  return result;
}

class Pooling : public ::testing::TestWithParam<PoolingCase> {};

template <typename Pool>
Network pooled(const PoolingCase& c) {
  Network network(c.input);
  network.add(Shift());
  network.add(Pool(c.options));
  return network;
}

TEST_P(Pooling, ComputesTheMaximumOfEachWindow) {
  Network network(GetParam().input);
  network.add(MaxPool2D(GetParam().options));
  Trial trial(std::move(network), 2);
  for (float& feature : trial.features()) feature -= 1.5f;  // all negative: padding must not win
  EXPECT_EQ(trial.predict(), by_definition(GetParam(), trial).largest);
}

TEST_P(Pooling, AveragesInsideTheImage) {
  Network network(GetParam().input);
  network.add(AveragePool2D(GetParam().options));
  Trial trial(std::move(network), 2);
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(1e-6f), by_definition(GetParam(), trial).mean));
}

TEST_P(Pooling, HasTheGradientsOfItsInput) {
  // The step must not change which element is the largest.
  expect_gradients_match_differences(pooled<MaxPool2D>(GetParam()), {.samples = 1, .step = 1e-3f});
  expect_gradients_match_differences(pooled<AveragePool2D>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Pooling,
    ::testing::Values(
        PoolingCase{"plain", {4, 6, 3}, {.pool = 2}},
        PoolingCase{"remainder", {5, 7, 3}, {.pool = 2}},
        PoolingCase{"overlapping", {7, 7, 2}, {.pool = 3, .strides = 2}},
        PoolingCase{
            "symmetric", {8, 7, 2}, {.pool = 3, .strides = 2, .padding = Padding::symmetric}},
        PoolingCase{"same", {5, 6, 2}, {.pool = 2, .strides = 2, .padding = Padding::same}},
        PoolingCase{
            "same_stride_one", {4, 4, 2}, {.pool = 3, .strides = 1, .padding = Padding::same}},
        PoolingCase{"unequal", {6, 6, 2}, {.pool = {3, 2}, .strides = Extent2D{1, 2}}},
        PoolingCase{"whole_vectors", {4, 4, 32}, {.pool = 2}},
        PoolingCase{"vectors_and_rest", {4, 4, 19}, {.pool = 2}},
        PoolingCase{"places_beyond_a_byte", {18, 17, 3}, {.pool = 17, .strides = 1}}),
    name_of_pooling);

TEST(MaxPool2D, RoutesTheGradientToTheFirstOfEqualValues) {
  Network network({2, 2, 1});
  network.add(Shift());
  network.add(MaxPool2D());
  Trial trial(std::move(network), 1);
  std::ranges::fill(trial.features(), 0.5f);
  std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
  trial.targets()[0] = 0;
  trial.train();
  EXPECT_THAT(trial.gradient("shift/offset"), ElementsAre(1, 0, 0, 0)) << "d/dx x^2 at 0.5, once";
}

TEST(MaxPool2D, PropagatesNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t at : {0u, 1u, 3u}) {
    Network network({2, 2, 1});
    network.add(MaxPool2D());
    Trial trial(std::move(network), 1);
    trial.features() = {-1, 2, 3, 1};
    trial.features()[at] = nan;
    EXPECT_THAT(trial.predict(), ElementsAre(::testing::IsNan())) << at;
  }
}

TEST(MaxPool2D, CommutesWithReLU) {
  const auto network = [](bool relu_first) {
    Network result({6, 6, 3});
    result.add(Shift());
    if (relu_first) result.add(ReLU());
    result.add(MaxPool2D());
    if (!relu_first) result.add(ReLU());
    return result;
  };
  Trial before(network(true), 4);
  Trial after(network(false), 4);
  EXPECT_EQ(before.train().loss_sum, after.train().loss_sum);
  const auto expected = after.gradient("shift/offset");
  EXPECT_THAT(before.gradient("shift/offset"),
              ::testing::ElementsAreArray(expected.begin(), expected.end()));
}

TEST(GlobalAveragePooling2D, IsTheMeanOverTheImage) {
  Network network({3, 4, 2});
  network.add(GlobalAveragePooling2D());
  ASSERT_EQ(network.output_shape(), Shape({2}));
  Trial trial(std::move(network), 2);
  const std::vector<float> outputs = trial.predict();
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t channel = 0; channel < 2; ++channel) {
      float sum = 0;
      for (std::size_t pixel = 0; pixel < 12; ++pixel)
        sum += trial.features()[(n * 12 + pixel) * 2 + channel];
      EXPECT_NEAR(outputs[n * 2 + channel], sum / 12, 1e-6f);
    }
}

TEST(GlobalAveragePooling2D, HasTheGradientsOfItsInput) {
  Network network({3, 4, 2});
  network.add(Shift());
  network.add(GlobalAveragePooling2D());
  expect_gradients_match_differences(network);
}

TEST(GlobalMaxPooling2D, IsTheLargestOfTheImage) {
  Network network({2, 2, 2});
  network.add(GlobalMaxPooling2D());
  ASSERT_EQ(network.output_shape(), Shape({2}));
  Trial trial(std::move(network), 2);
  trial.features() = {1, -8, 3, -6, 2, -7, 0, -5, -4, 8, -3, 6, -2, 7, -1, 5};
  EXPECT_THAT(trial.predict(), ElementsAre(3, -5, -1, 8));
}

TEST(GlobalMaxPooling2D, HasTheGradientsOfItsInput) {
  Network network({3, 4, 2});
  network.add(Shift());
  network.add(GlobalMaxPooling2D());
  expect_gradients_match_differences(network, {.samples = 1, .step = 1e-3f});
}

TEST(UpSampling2D, RepeatsEachPixel) {
  Network network({2, 1, 2});
  network.add(UpSampling2D({.size = {2, 3}}));
  ASSERT_EQ(network.output_shape(), Shape({4, 3, 2}));
  Trial trial(std::move(network), 2);
  trial.features() = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(trial.predict(),
              ElementsAre(1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4, 5,
                          6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8));
}

TEST(UpSampling2D, HasTheGradientsOfItsInput) {
  Network network({3, 2, 2});
  network.add(Shift());
  network.add(UpSampling2D({.size = {2, 3}}));
  expect_gradients_match_differences(network);
  EXPECT_EQ(input_error_of([] {
              Network({3, 2, 2}).add(UpSampling2D({.size = {0, 1}}));
            }),
            "[layer up_sampling2d (up_sampling2d)] expected a positive size, got 0x1");
}

// torch.nn.functional.interpolate(x, scale_factor=(2, 3), mode="bilinear") of [[0, 3], [6, 12]].
TEST(UpSampling2D, InterpolatesBetweenPixelCenters) {
  Network network({2, 2, 1});
  network.add(UpSampling2D({.size = {2, 3}, .interpolation = Interpolation::bilinear}));
  Trial trial(std::move(network), 1);
  trial.features() = {0, 3, 6, 12};
  EXPECT_THAT(trial.predict(),
              Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 1.0f,  2.0f,  3.0f,  3.0f,   //
                                           1.5f, 1.5f, 2.75f, 4.0f,  5.25f, 5.25f,  //
                                           4.5f, 4.5f, 6.25f, 8.0f,  9.75f, 9.75f,  //
                                           6.0f, 6.0f, 8.0f,  10.0f, 12.0f, 12.0f}));
}

TEST(UpSampling2D, HasTheGradientsOfItsInterpolation) {
  for (const Extent2D size : {Extent2D(2, 3), Extent2D(1, 4), Extent2D(5, 1)})
    for (const Shape& shape : {Shape{3, 2, 2}, Shape{1, 4, 3}}) {
      Network network(shape);
      network.add(Shift());
      network.add(UpSampling2D({.size = size, .interpolation = Interpolation::bilinear}));
      expect_gradients_match_differences(network);
    }
}

TEST(Pooling2D, RefusesAnImageSmallerThanItsWindow) {
  EXPECT_EQ(input_error_of([] {
              Network({1, 1, 4}).add(MaxPool2D());
            }),
            "[layer max_pool2d (max_pool2d)] expected an image of at least 2x2, got [1, 1, 4]");
  EXPECT_EQ(input_error_of([] { Network({16}).add(AveragePool2D()); }),
            "[layer average_pool2d (average_pool2d)] expected an input [height, width, channels], "
            "got [16]");
  EXPECT_EQ(input_error_of([] { Network({16}).add(GlobalAveragePooling2D()); }),
            "[layer global_average_pooling2d (global_average_pooling2d)] expected an input "
            "[height, width, channels], got [16]");
}

}  // namespace
}  // namespace lockstep::inline v0::model
