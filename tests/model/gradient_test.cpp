// Whole networks against differences: what single layers cannot show, such as memory that a plan
// reuses and gradients that meet.
#include <gtest/gtest.h>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::model {
namespace {

// Differences mean nothing where a ReLU changes sides within the step: the seed is one at which
// none does.
constexpr DifferenceCheck kWithKinks{.samples = 4, .seed = 2, .step = 2e-3f, .tolerance = 2e-2};

TEST(Gradients, OfAChainWithDropout) {
  Network network({10});
  network.add(Dense({.units = 8}));
  network.add(ReLU());
  network.add(Dropout({.rate = 0.4f}));
  network.add(Dense({.units = 8}));
  network.add(Dropout({.rate = 0.2f}));
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(std::move(network), kWithKinks);
}

TEST(Gradients, OfAResidualBlock) {
  Network network({5, 5, 3});
  const NodeId stem = network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(BatchNormalization());
  const NodeId input = network.add(ReLU());
  network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  const NodeId residual = network.add(BatchNormalization());
  network.add(Add(), {residual, input});
  network.add(ReLU());
  network.add(GlobalAveragePooling2D());
  network.add(Dense({.units = 3}));
  EXPECT_EQ(stem, 0);
  expect_gradients_match_differences(std::move(network), kWithKinks);
}

// The convolutions before a normalization have no bias: it would subtract the bias again, so that
// the gradient is 0 and a difference of losses only what they are rounded by.
TEST(Gradients, OfABlockWithAProjection) {
  Network network({6, 6, 3});
  const NodeId input = network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(Conv2D(
      {.filters = 6, .kernel = 3, .strides = 2, .padding = Padding::symmetric, .use_bias = false}));
  const NodeId residual = network.add(BatchNormalization());
  network.add(Conv2D({.filters = 6,
                      .kernel = 1,
                      .strides = 2,
                      .padding = Padding::symmetric,
                      .use_bias = false}),
              {input});
  const NodeId projection = network.add(BatchNormalization());
  network.add(Add(), {residual, projection});
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(std::move(network), {.samples = 4});
}

TEST(Gradients, OfAnOutputThatManyRead) {
  Network network({6});
  const NodeId shared = network.add(Dense({.units = 6}));
  const NodeId cut = network.add(ReLU(), {shared});
  const NodeId flat = network.add(Flatten(), {shared});
  const NodeId dense = network.add(Dense({.units = 6}), {shared});
  const NodeId dropped = network.add(Dropout({.rate = 0.5f}), {shared});
  const NodeId sum = network.add(Add(), {shared, cut, flat, dense, dropped});
  network.add(Add(), {sum, sum, shared});
  expect_gradients_match_differences(std::move(network), kWithKinks);
}

TEST(Gradients, OfTwoReLUsOnOneSum) {
  Network network({6});
  const NodeId first = network.add(Dense({.units = 6}));
  const NodeId sum = network.add(Add(), {first, kInput});
  const NodeId one = network.add(ReLU(), {sum});
  const NodeId two = network.add(ReLU(), {sum});
  network.add(Add(), {one, two});
  network.add(ReLU());
  network.add(ReLU());
  expect_gradients_match_differences(std::move(network), kWithKinks);
}

TEST(Gradients, OfReshapesInARow) {
  Network network({2, 2, 3});
  network.add(Shift());
  const NodeId flat = network.add(Flatten());
  network.add(Flatten());
  network.add(Dropout({.rate = 0}));
  network.add(Add(), {network.last(), flat});
  network.add(Dense({.units = 2}));
  expect_gradients_match_differences(std::move(network));
}

TEST(Gradients, OfLayersBehindPartsWithoutParameters) {
  Network network({6, 6, 2});
  network.add(MaxPool2D());
  const NodeId pooled = network.add(ReLU());
  network.add(Conv2D({.filters = 2, .kernel = 1}));
  network.add(Add(), {network.last(), pooled});
  network.add(Softmax());
  expect_gradients_match_differences(std::move(network), {.step = 1e-2f, .floor = 0.02});
}

TEST(Gradients, OfPoolingBetweenReLUs) {
  Network network({8, 8, 2});
  network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(ReLU());
  network.add(MaxPool2D());
  network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
  network.add(ReLU());
  network.add(AveragePool2D());
  network.add(Flatten());
  network.add(Dense({.units = 3}));
  expect_gradients_match_differences(std::move(network),
                                     {.samples = 2, .step = 1e-3f, .tolerance = 2e-2});
}

}  // namespace
}  // namespace lockstep::model
