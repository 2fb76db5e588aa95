#include "lockstep/data/image/recipe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/data/support.h"

namespace lockstep::data {
namespace {

TEST(ImageRecipe, IsKnownByName) {
  for (const std::string& name : ImageRecipe::names())
    EXPECT_EQ(ImageRecipe::parse(name, 1, 1).name, name);
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
  EXPECT_EQ(none.normalization, ChannelNormalization());
}

TEST(ImageRecipe, NamesAllWhereOneIsMisspelt) {
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("cifar-train"); }),
            "[image recipe] expected one of cifar10-train, cifar10-test, imagenet-train, "
            "imagenet-test, none, got \"cifar-train\"");
}

TEST(ImageRecipe, TellsWhatIsOtherThanItsNameSays) {
  for (const std::string& name : ImageRecipe::names())
    EXPECT_EQ(ImageRecipe::parse(name, 7, 7).description(), name);
  ImageRecipe recipe = ImageRecipe::parse("cifar10-train");
  recipe.flip = 0.25;
  recipe.cutout = 8;
  recipe.jitter.contrast = 0.4;
  EXPECT_EQ(recipe.description(), "cifar10-train, flip 0.25, jitter 0, 0.4, 0, cutout 8");
  recipe = ImageRecipe::parse("imagenet-train");
  recipe.height = 192;
  recipe.geometry = RandomResizedCrop{{{0.25, 1}, {1, 1}}};
  recipe.filter = Filter::area;
  recipe.scaled_decoding = false;
  recipe.normalization = {};
  EXPECT_EQ(recipe.description(),
            "imagenet-train, 192x224x3, random resized crops of 0.25 to 1, ratio 1 to 1, area, "
            "decoded in full, not normalized");
  recipe = ImageRecipe::parse("imagenet-test");
  recipe.geometry = ResizedCenter{300};
  recipe.normalization.mean[0] = 0.5f;
  EXPECT_EQ(recipe.description(),
            "imagenet-test, the middle of the shorter side resized to 300, normalized by (0.5, "
            "0.456, 0.406) and (0.229, 0.224, 0.225)");
  recipe = ImageRecipe::parse("cifar10-test");
  recipe.geometry = PaddedCrop{2};
  EXPECT_EQ(recipe.description(), "cifar10-test, crops with a border of 2, of any image");
  recipe.name = "ours";
  EXPECT_EQ(recipe.description(),
            "ours, crops with a border of 2, of any image, normalized by (0.4914, 0.4822, 0.4465) "
            "and (0.247, 0.2435, 0.2616)");
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
            "[image recipe none] expected an output of at least 1 x 1, got 0 x 0");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.channels = 4; }),
            "[image recipe cifar10-train] expected 1 or 3 channels, got 4");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.flip = 1.5; }),
            "[image recipe cifar10-train] expected a flip probability from 0 to 1, got 1.5");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.cutout = -1; }),
            "[image recipe cifar10-train] expected a cutout of 0 to 32768 pixels, got -1");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.normalization.deviation[1] = 0; }),
            "[image recipe cifar10-train] expected deviations above 0, got 0.247, 0, 0.2616");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.geometry = PaddedCrop{-4}; }),
            "[image recipe cifar10-train] expected a padding of 0 to 32768 pixels, got -4");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.geometry = PaddedCrop{1 << 30}; }),
            "[image recipe cifar10-train] expected a padding of 0 to 32768 pixels, got 1073741824");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.cutout = 1 << 30; }),
            "[image recipe cifar10-train] expected a cutout of 0 to 32768 pixels, got 1073741824");
  EXPECT_EQ(
      refusal([](ImageRecipe& recipe) { recipe.height = 1 << 20; }),
      "[image recipe cifar10-train] expected an output of at most 32768 x 32768, got 1048576 x 32");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.jitter.contrast = -0.1; }),
            "[image recipe cifar10-train] expected a jitter of contrast from 0 to 10, got -0.1");
  EXPECT_EQ(
      refusal([](ImageRecipe& recipe) { recipe.jitter.brightness = 1e9; }),
      "[image recipe cifar10-train] expected a jitter of brightness from 0 to 10, got 1000000000");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.jitter.saturation = std::nan(""); }),
            "[image recipe cifar10-train] expected a jitter of saturation from 0 to 10, got nan");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) { recipe.geometry = ResizedCenter{31}; }),
            "[image recipe cifar10-train] expected a shorter side no shorter than the output, got "
            "31 for 32 x 32");
  EXPECT_EQ(
      refusal([](ImageRecipe& recipe) {
        recipe.geometry = RandomResizedCrop{{{0, 1}, {1, 1}}};
      }),
      "[image recipe cifar10-train] expected area fractions above 0 and at most 1, got 0 to 1");
  EXPECT_EQ(refusal([](ImageRecipe& recipe) {
              recipe.geometry = RandomResizedCrop{{{0.5, 1}, {2, 1}}};
            }),
            "[image recipe cifar10-train] expected ratios from 1/5 to 5, got 2 to 1");
}

}  // namespace
}  // namespace lockstep::data
