#include "lockstep/data/image/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data/support.h"

namespace lockstep::data {
namespace {

TEST(ImageRecipe, IsKnownByName) {
  for (const std::string& name : ImageRecipe::names())
    EXPECT_EQ(ImageRecipe::parse(name).name, name);
  const ImageRecipe cifar = ImageRecipe::parse("cifar10-train");
  EXPECT_EQ(cifar.height, 32);
  EXPECT_EQ(std::get<PaddedCrop>(cifar.geometry).padding, 4);
  EXPECT_EQ(cifar.flip, 0.5);
  EXPECT_EQ(cifar.normalization, kCifar10Normalization);
  const ImageRecipe imagenet = ImageRecipe::parse("imagenet-test");
  EXPECT_EQ(imagenet.width, 224);
  EXPECT_EQ(imagenet.shorter_side(std::get<ResizedCenter>(imagenet.geometry)), 256);
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

TEST(ImageRecipe, OfImageNetHasTheSizeOfTheCallerAndItsShorterSide) {
  for (const char* name : {"imagenet-train", "imagenet-test"}) {
    const ImageRecipe small = ImageRecipe::parse(name, 48, 40);
    small.check();
    EXPECT_EQ(small.description(), std::string(name) + ", 48x40x3");
  }
  ImageRecipe test = ImageRecipe::parse("imagenet-test", 160, 160);
  const auto shorter = [&] { return test.shorter_side(std::get<ResizedCenter>(test.geometry)); };
  EXPECT_EQ(shorter(), 182);
  test.height = 448;
  EXPECT_EQ(shorter(), 512) << "a field that is changed afterwards counts too";
  test.geometry = ResizedCenter{460};
  EXPECT_EQ(shorter(), 460);
}

TEST(ImageRecipe, OfCifarHasNoOtherSize) {
  EXPECT_EQ(ImageRecipe::parse("cifar10-test", 32, 32), ImageRecipe::parse("cifar10-test"));
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("cifar10-train", 28, 28); }),
            "[image recipe cifar10-train] expected an output of 32 x 32, got 28 x 28");
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("imagenet-test", 0, 0, 1); }),
            "[image recipe imagenet-test] expected 3 channels, got 1");
}

TEST(ImageRecipe, ForTestImagesHasNothingRandom) {
  EXPECT_EQ(ImageRecipe::parse("cifar10-train").for_test(), ImageRecipe::parse("cifar10-test"));
  EXPECT_EQ(ImageRecipe::parse("imagenet-train", 96, 96).for_test(),
            ImageRecipe::parse("imagenet-test", 96, 96));
  ImageRecipe ours = ImageRecipe::parse("none", 20, 20);
  ours.name = "ours";
  ours.geometry = ResizedCenter{30};
  ours.filter = Filter::area;
  const ImageRecipe test = ours;
  ours.jitter.brightness = 0.2;
  ours.cutout = 4;
  EXPECT_EQ(ours.for_test(), test);
}

TEST(ImageRecipe, IsReadAsItWasWritten) {
  std::vector<ImageRecipe> recipes;
  for (const std::string& name : ImageRecipe::names())
    recipes.push_back(name == "none" ? ImageRecipe::parse(name, 28, 27, 1)
                                     : ImageRecipe::parse(name));
  ImageRecipe changed = ImageRecipe::parse("imagenet-train", 48, 40);
  changed.geometry = RandomResizedCrop{{{0.25, 1}, {0.9, 1.1}}};
  changed.jitter = {.brightness = 0.1, .contrast = 0.2, .saturation = 0.3};
  changed.cutout = 8;
  changed.normalization.mean = {0.1F, 0.2F, 0.3F};
  recipes.push_back(changed);
  changed.geometry = ResizedCenter{.shorter = 50};
  recipes.push_back(changed);
  changed.geometry = PaddedCrop{.padding = 3};
  recipes.push_back(changed);
  for (const ImageRecipe& recipe : recipes) {
    const auto text = recipe.to_json().dump();
    EXPECT_EQ(ImageRecipe::from_json(nlohmann::json::parse(text)), recipe) << text;
  }
}

TEST(ImageRecipe, SaysWhatIsWrongWithItsJson) {
  const auto refusal = [](const char* key, const nlohmann::json& value) -> std::string {
    nlohmann::json json = ImageRecipe::parse("imagenet-test").to_json();
    json[key] = value;
    try {
      ImageRecipe::from_json(json);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("height", 224), "");
  EXPECT_EQ(refusal("height", 1e30), "its \"height\" is 1e+30");
  EXPECT_EQ(refusal("height", -1), "its \"height\" is -1");
  EXPECT_EQ(refusal("geometry", {{"kind", "spiral"}}), "its \"kind\" is \"spiral\"");
  EXPECT_EQ(refusal("geometry", {{"kind", "resized-center"}}), "it has no \"shorter\"");
  EXPECT_EQ(refusal("filter", "sharp"), "its \"filter\" is unknown");
  EXPECT_EQ(refusal("normalization", {{"channels", 3}}), "it has no \"mean\"");
  EXPECT_EQ(refusal("flip", 2),
            "[image recipe imagenet-test] expected a flip probability from 0 "
            "to 1, got 2");
}

TEST(ImageRecipe, NamesAllWhereOneIsMisspelt) {
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("cifar-train"); }),
            "[image recipe] expected one of cifar10-train, cifar10-test, imagenet-train, "
            "imagenet-test, none, got \"cifar-train\"");
}

TEST(ImageRecipe, TellsWhatIsOtherThanItsNameSays) {
  for (const std::string& name : ImageRecipe::names())
    EXPECT_EQ(ImageRecipe::parse(name).description(), name);
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
