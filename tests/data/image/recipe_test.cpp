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
  EXPECT_EQ(none.normalization, Normalization{});
}

TEST(ImageRecipe, NamesAllWhereOneIsMisspelt) {
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("cifar-train"); }),
            "[image recipe] needed one of cifar10-train, cifar10-test, imagenet-train, imagenet-test, none; got "
            "\"cifar-train\"");
}

}  // namespace
}  // namespace lockstep::data
