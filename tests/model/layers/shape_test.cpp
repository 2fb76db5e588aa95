#include "lockstep/model/layers/shape/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/elementwise/elementwise.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAre;

// The output of the network for one sample 1, 2, 3, ...
std::vector<float> shaped(Network network) {
  Trial trial(std::move(network), 1);
  std::iota(trial.features().begin(), trial.features().end(), 1.0f);
  return trial.predict();
}

TEST(ReshapeLayer, KeepsTheOrder) {
  Network network({2, 3, 2});
  network.add(Reshape({.shape = {3, 4}}));
  ASSERT_EQ(network.output_shape(), Shape({3, 4}));
  Trial trial(std::move(network), 2);
  EXPECT_EQ(trial.predict(), trial.features());
}

TEST(ReshapeLayer, RefusesAnotherNumberOfElements) {
  for (const Shape& shape : {Shape{3, 3}, Shape{}, Shape{-3, -4}})
    EXPECT_EQ(input_error_of([&] {
                Network({2, 3, 2}).add(Reshape({.shape = shape}));
              }),
              "[layer reshape (reshape)] expected a shape of 12 elements, got " + to_string(shape) +
                  " for [2, 3, 2]");
}

TEST(PermuteLayer, ReordersAxes) {
  Network transposed({2, 3});
  transposed.add(Permute({.dims = {2, 1}}));
  EXPECT_EQ(transposed.output_shape(), Shape({3, 2}));
  EXPECT_THAT(shaped(std::move(transposed)), ElementsAre(1, 4, 2, 5, 3, 6));

  // numpy.arange(1, 13).reshape(2, 3, 2).transpose(2, 0, 1).ravel()
  Network channels_first({2, 3, 2});
  channels_first.add(Permute({.dims = {3, 1, 2}}));
  EXPECT_EQ(channels_first.output_shape(), Shape({2, 2, 3}));
  EXPECT_THAT(shaped(std::move(channels_first)),
              ElementsAre(1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12));

  Network whole_pixels({2, 2, 2});
  whole_pixels.add(Permute({.dims = {2, 1, 3}}));
  EXPECT_THAT(shaped(std::move(whole_pixels)), ElementsAre(1, 2, 5, 6, 3, 4, 7, 8));
}

TEST(PermuteLayer, RefusesInvalidPermutations) {
  for (const Shape& dims : {Shape{1, 1}, Shape{1}, Shape{0, 1}, Shape{3, 1}, Shape{1, 2, 3}})
    EXPECT_EQ(
        input_error_of([&] {
          Network({2, 3}).add(Permute({.dims = dims}));
        }),
        "[layer permute (permute)] expected dims with each of 1 to 2 once, got " + to_string(dims));
  EXPECT_EQ(input_error_of([] {
              Network({1, 2, 3, 4, 5, 6}).add(Permute({.dims = {1, 2, 3, 4, 5, 6}}));
            }),
            "[layer permute (permute)] expected an input of at most 5 axes, got [1, 2, 3, 4, 5, "
            "6]");
}

TEST(ConcatenateLayer, JoinsAlongAnyAxis) {
  const auto joined = [](std::int64_t axis) {
    Network network({2, 2});
    network.add(Concatenate({.axis = axis}), {kInput, kInput});
    return shaped(std::move(network));
  };
  EXPECT_THAT(joined(1), ElementsAre(1, 2, 3, 4, 1, 2, 3, 4));
  EXPECT_THAT(joined(-1), ElementsAre(1, 2, 1, 2, 3, 4, 3, 4));
  EXPECT_EQ(joined(2), joined(-1));
  EXPECT_EQ(joined(1), joined(-2));

  Network network({2, 1, 2});
  const NodeId padded = network.add(ZeroPadding2D({.top = 0, .bottom = 0, .left = 1, .right = 0}));
  network.add(Concatenate({.axis = 2}), {padded, kInput});
  EXPECT_EQ(network.output_shape(), Shape({2, 3, 2}));
  EXPECT_THAT(shaped(std::move(network)), ElementsAre(0, 0, 1, 2, 1, 2, 0, 0, 3, 4, 3, 4));
}

TEST(ConcatenateLayer, JoinsRowsOfAnyLength) {
  for (const std::size_t length : {1, 7, 8, 19, 127, 128, 300}) {
    SCOPED_TRACE(length);
    Network network({2, static_cast<std::int64_t>(length)});
    network.add(Concatenate(), {kInput, kInput});
    std::vector<float> expected;
    for (const std::size_t row : {0, 0, 1, 1})
      for (std::size_t i = 0; i < length; ++i)
        expected.push_back(static_cast<float>(row * length + i + 1));
    EXPECT_EQ(shaped(std::move(network)), expected);
  }
}

TEST(ConcatenateLayer, RefusesInputsThatDifferElsewhere) {
  Network network({2, 3});
  const NodeId other = network.add(Permute({.dims = {2, 1}}));
  const NodeId flat = network.add(Flatten());
  const auto refused = [&](std::int64_t axis, std::vector<NodeId> inputs) {
    return input_error_of([&] { network.add(Concatenate({.axis = axis}), std::move(inputs)); });
  };
  const std::string where = "[layer concatenate (concatenate)] ";
  EXPECT_EQ(refused(-1, {kInput, other}),
            where + "expected inputs that differ in axis 2 alone, got [2, 3] and [3, 2]");
  EXPECT_EQ(refused(1, {kInput, flat}),
            where + "expected inputs that differ in axis 1 alone, got [2, 3] and [6]");
  EXPECT_EQ(refused(1, {kInput}), where + "expected two inputs or more, got 1");
  for (const std::int64_t axis : {0, 3, -3})
    EXPECT_EQ(
        refused(axis, {kInput, kInput}),
        where + "expected an axis from 1 to 2, or from -2 to -1, got " + std::to_string(axis));
}

TEST(ZeroPadding2DLayer, AddsZerosOnEachSide) {
  Network network({1, 2, 2});
  network.add(ZeroPadding2D({.top = 1, .bottom = 0, .left = 2, .right = 1}));
  EXPECT_EQ(network.output_shape(), Shape({2, 5, 2}));
  EXPECT_THAT(shaped(std::move(network)),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0));
  EXPECT_EQ(Network({3, 4, 2}).add(ZeroPadding2D()), 0);
  EXPECT_EQ(input_error_of([] {
              Network({3, 4, 2}).add(ZeroPadding2D({.left = -1}));
            }),
            "[layer zero_padding2d (zero_padding2d)] expected no negative number of zeros, got 1, "
            "1, -1 and 1");
}

TEST(Cropping1DLayer, RemovesPositionsAtBothEnds) {
  Network network({4, 2});
  network.add(Cropping1D({.before = 1, .after = 2}));
  EXPECT_EQ(network.output_shape(), Shape({1, 2}));
  EXPECT_THAT(shaped(std::move(network)), ElementsAre(3, 4));
  EXPECT_EQ(Network({3, 2}).add(Cropping1D()), 0);
  EXPECT_EQ(input_error_of([] {
              Network({3, 2}).add(Cropping1D({.before = 3, .after = 0}));
            }),
            "[layer cropping1d (cropping1d)] expected to leave at least one of 3 positions, got a "
            "cropping of 3 and 0");
  EXPECT_EQ(input_error_of([] { Network({6}).add(Cropping1D()); }),
            "[layer cropping1d (cropping1d)] expected an input [positions, channels], got [6]");
}

TEST(Cropping1DLayer, HasTheGradientOfItsInput) {
  Network network({5, 3});
  network.add(Shift());
  network.add(Cropping1D({.before = 1, .after = 2}));
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(network);
}

TEST(ShapeLayers, HaveTheGradientsOfTheirInputs) {
  Network network({3, 2, 4});
  const NodeId shifted = network.add(Shift());
  const NodeId reshaped = network.add(Reshape({.shape = {2, 2, 6}}));
  const NodeId permuted = network.add(Permute({.dims = {3, 1, 2}}), {reshaped});  // [6, 2, 2]
  const NodeId padded = network.add(ZeroPadding2D({.top = 0, .bottom = 3, .left = 0, .right = 0}),
                                    {shifted});  // [6, 2, 4]
  const NodeId joined = network.add(Concatenate(), {permuted, padded, permuted});
  ASSERT_EQ(network.output_shape(), Shape({6, 2, 8}));
  network.add(Multiply(), {joined, joined});
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(network);
}

}  // namespace
}  // namespace lockstep::inline v0::model
