#include "data/image/recipe.h"

#include <gtest/gtest.h>

#include "tests/data/support.h"

namespace lockstep::data {
namespace {

TEST(ImageRecipe, IsKnownByName) {
  for (const std::string& name : ImageRecipe::names()) EXPECT_EQ(ImageRecipe::parse(name, 1, 1).name, name);
  const ImageRecipe cifar = ImageRecipe::parse("cifar10-train");
  EXPECT_EQ(cifar.height, 32);
  EXPECT_EQ(std::get<PaddedCrop>(cifar.geometry).padding, 4);
  EXPECT_EQ(cifar.flip, 0.5);
  EXPECT_EQ(cifar.normalization, kCifar10Normalization);
  const ImageRecipe imagenet = ImageRecipe::parse("imagenet-test");
  EXPECT_EQ(imagenet.width, 224);
  EXPECT_EQ(std::get<ResizedCenter>(imagenet.geometry).shorter, 256);
  EXPECT_EQ(imagenet.flip, 0);
  EXPECT_FALSE(imagenet.scaled_decoding);
}

TEST(ImageRecipe, NoneTakesItsSizeFromTheCaller) {
  const ImageRecipe none = ImageRecipe::parse("none", 28, 27, 1);
  EXPECT_EQ(none.height, 28);
  EXPECT_EQ(none.width, 27);
  EXPECT_EQ(none.channels, 1);
  EXPECT_EQ(none.normalization, device::ChannelNormalization());
}

TEST(ImageRecipe, NamesAllWhereOneIsMisspelt) {
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("cifar-train"); }),
            "[image recipe] needed one of cifar10-train, cifar10-test, imagenet-train, imagenet-test, none; got "
            "\"cifar-train\"");
}

/// What check() says of cifar10-train after `change`.
template <typename Change>
std::string refusal(Change change) {
  ImageRecipe recipe = ImageRecipe::parse("cifar10-train");
  recipe.check();
  change(recipe);
  return input_error_of([&] { recipe.check(); });
}

TEST(ImageRecipe, RefusesWhatMakesNoSense) {
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("none").check(); }),
            "[image recipe none] needed an output of at least 1 x 1; got 0 x 0");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.channels = 4; }),
            "[image recipe cifar10-train] needed 1 or 3 channels; got 4");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.flip = 1.5; }),
            "[image recipe cifar10-train] needed a share of flips from 0 to 1; got 1.5");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.cutout = -1; }),
            "[image recipe cifar10-train] needed a cutout of at least 0 pixels; got -1");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.normalization.deviation[1] = 0; }),
            "[image recipe cifar10-train] needed deviations above 0; got 0.247, 0, 0.2616");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.geometry = PaddedCrop{-4}; }),
            "[image recipe cifar10-train] needed a padding of at least 0 pixels; got -4");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.geometry = ResizedCenter{31}; }),
            "[image recipe cifar10-train] needed a shorter side no shorter than the output; got 31 for 32 x 32");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) {
              recipe.geometry = RandomResizedCrop{{{0, 1}, {1, 1}}};
            }),
            "[image recipe cifar10-train] needed areas from above 0 to 1; got 0 to 1");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) {
              recipe.geometry = RandomResizedCrop{{{0.5, 1}, {2, 1}}};
            }),
            "[image recipe cifar10-train] needed ratios from 1/5 to 5; got 2 to 1");
}

}  // namespace
}  // namespace lockstep::data
