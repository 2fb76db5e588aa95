#include "lockstep/data/image/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

TEST(ImageRecipe, ParsesNames) {
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

TEST(ImageRecipe, NoneUsesTheSizeOfTheCaller) {
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
  EXPECT_EQ(shorter(), 512) << "a field changed afterwards has an effect";
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

TEST(ImageRecipe, RoundTripsJson) {
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

TEST(ImageRecipe, RejectsInvalidJson) {
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
  EXPECT_EQ(refusal("erase", -1),
            "[image recipe imagenet-test] expected a probability of erasing from 0 to 1, got -1");
  EXPECT_EQ(refusal("height", 1e30), "its \"height\" is 1e+30");
  EXPECT_EQ(refusal("height", -1), "its \"height\" is -1");
  EXPECT_EQ(refusal("geometry", {{"kind", "spiral"}}), "its \"kind\" is \"spiral\"");
  EXPECT_EQ(refusal("geometry", {{"kind", "resized-center"}}), "it has no \"shorter\"");
  EXPECT_EQ(refusal("name", "ours"), "");
  EXPECT_EQ(refusal("name", "resize=64,flp"), "its \"name\" is \"resize=64,flp\"");
  EXPECT_EQ(refusal("filter", "sharp"), "its \"filter\" is unknown");
  EXPECT_EQ(refusal("normalization", {{"channels", 3}}), "it has no \"mean\"");
  EXPECT_EQ(refusal("flip", 2),
            "[image recipe imagenet-test] expected a flip probability from 0 "
            "to 1, got 2");
}

// ---- Steps

TEST(ImageRecipe, StepsMatchNamedRecipes) {
  ImageRecipe imagenet = ImageRecipe::parse("imagenet-train", 160, 160);
  imagenet.name = "random-crop=160,flip,normalize=imagenet";
  EXPECT_EQ(ImageRecipe::parse(imagenet.name), imagenet);
  ImageRecipe test = ImageRecipe::parse("imagenet-test", 160, 160);
  test.name = "resize=182,crop=160,normalize=imagenet";
  test.geometry = ResizedCenter{182};
  EXPECT_EQ(imagenet.for_test(), test);
  EXPECT_EQ(ImageRecipe::parse(test.name), test);
  ImageRecipe cifar = ImageRecipe::parse("cifar10-train");
  cifar.name = "pad=4,crop=32,flip,normalize=cifar10";
  cifar.geometry = PaddedCrop{4};
  EXPECT_EQ(ImageRecipe::parse(cifar.name), cifar);
  EXPECT_EQ(cifar.for_test().name, "resize=32,normalize=cifar10");
  const ImageRecipe all = ImageRecipe::parse(
      "random-crop=48x40,scale=0.25+1,ratio=0.9+1.1,filter=area,gray,flip=0.25,color=0.1+0.2+0.3,"
      "normalize=0.5+0.25,erase=0.1");
  EXPECT_EQ(std::get<RandomResizedCrop>(all.geometry),
            (RandomResizedCrop{{{0.25, 1}, {0.9, 1.1}}}));
  EXPECT_EQ(all.height, 48);
  EXPECT_EQ(all.width, 40);
  EXPECT_EQ(all.channels, 1);
  EXPECT_EQ(all.flip, 0.25);
  EXPECT_EQ(all.jitter, (ColorJitterRange{0.1, 0.2, 0.3}));
  EXPECT_EQ(all.normalization.mean[0], 0.5F);
  EXPECT_EQ(all.erase, 0.1);
  EXPECT_EQ(all.for_test().name, "resize=54,crop=48x40,filter=area,gray,normalize=0.5+0.25");
}

TEST(ImageRecipe, StepsDefineTheEvaluation) {
  for (const std::string text :
       {"resize=64", "resize=256,crop=224,flip,color=0.4,normalize=imagenet,erase=0.25",
        "pad=4,crop=32x24,cutout=8", "random-crop=96,filter=area:resize=96,filter=bilinear",
        "random-crop=96,filter=bilinear,exif=off,gray,flip"}) {
    const ImageRecipe recipe = ImageRecipe::parse(text);
    EXPECT_EQ(recipe.description(), text);
    EXPECT_EQ(ImageRecipe::from_json(recipe.to_json()), recipe);
    const ImageRecipe test = recipe.for_test();
    EXPECT_EQ(ImageRecipe::parse(test.name), test) << text;
    EXPECT_EQ(test.for_test(), test) << text;
  }
  EXPECT_FALSE(ImageRecipe::parse("random-crop=96,exif=off,flip").for_test().exif);
  ImageRecipe changed = ImageRecipe::parse("random-crop=96,flip");
  changed.normalization = kCifar10Normalization;
  EXPECT_EQ(changed.for_test().normalization, kCifar10Normalization);
  EXPECT_EQ(changed.description().substr(0, 33), "random-crop=96,flip, normalized b");
}

TEST(ImageRecipe, RejectsInvalidSteps) {
  for (const auto& [steps, message] : std::vector<std::pair<std::string, std::string>>{
           {"resize=64,flipp",
            "[images] expected resize, pad, random-crop, crop, scale, ratio, filter, exif, gray, "
            "flip, color, normalize, cutout or erase, got \"flipp\" (did you mean flip?)"},
           {"resize=large",
            "[images] expected resize=N in whole numbers of 1 to 32768 pixels, got "
            "\"resize=large\""},
           {"resize=0",
            "[images] expected resize=N in whole numbers of 1 to 32768 pixels, got "
            "\"resize=0\""},
           {"resize=64x32",
            "[images] expected resize=N in whole numbers of 1 to 32768 pixels, got "
            "\"resize=64x32\""},
           {"random-crop=8.5",
            "[images] expected random-crop=N or HxW in whole numbers of 1 to 32768 "
            "pixels, got \"random-crop=8.5\""},
           {"flip,resize=64", "[images] expected resize before flip, got \"resize=64\""},
           {"resize=64,flip,flip", "[images] expected flip once, got \"flip\""},
           {"resize=64,random-crop=32",
            "[images] expected one of the steps resize, pad and "
            "random-crop, got \"random-crop=32\""},
           {"crop=64", "[images] expected resize=N or pad=N before crop, got \"crop=64\""},
           {"resize=64,scale=0.1+1",
            "[images] expected random-crop=SIZE before scale, got \"scale=0.1+1\""},
           {"random-crop=64,scale=0.1",
            "[images] expected scale=A+B, the ends of a range, got \"scale=0.1\""},
           {"resize=64,exif=no", "[images: exif] expected on or off, got \"no\""},
           {"flip,gray", "[images] expected gray before flip, got \"gray\""},
           {"pad=4",
            "[images] expected a size: resize=N, pad=N,crop=SIZE or random-crop=SIZE, got "
            "\"pad=4\""},
           {"resize=64,normalize=mnist",
            "[images] expected normalize=imagenet, cifar10 or "
            "MEAN+DEVIATION, got \"normalize=mnist\""},
           {"resize=64,flip=2",
            "[image recipe resize=64,flip=2] expected a flip probability from 0 to 1, got 2"},
           {"resize=64,crop=80",
            "[image recipe resize=64,crop=80] expected a shorter side no "
            "shorter than the output, got 64 for 80 x 80"},
           {"resize=64,cutout=4,erase",
            "[image recipe resize=64,cutout=4,erase] expected cutout or erase, got both"},
           {"resize=64:resize=64,flip",
            "[images] expected an evaluation without random steps, got \"resize=64,flip\""},
           {"resize=64:resize=32",
            "[images] expected one size for training and evaluation, got 64x64x3 and 32x32x3"}})
    EXPECT_EQ(input_error_of([&] { ImageRecipe::parse(steps); }), message);
}

TEST(ImageRecipe, ListsNamesForAMisspelledOne) {
  EXPECT_EQ(input_error_of([] { ImageRecipe::parse("cifar-train"); }),
            "[image recipe] expected one of cifar10-train, cifar10-test, imagenet-train, "
            "imagenet-test, none, got \"cifar-train\"");
}

TEST(ImageRecipe, DescribesDifferencesFromItsName) {
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

/// The error of check() for cifar10-train after `change`.
template <typename Change>
std::string refusal(Change change) {
  ImageRecipe recipe = ImageRecipe::parse("cifar10-train");
  recipe.check();
  change(recipe);
  return input_error_of([&] { recipe.check(); });
}

TEST(ImageRecipe, RejectsInvalidFields) {
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
}  // namespace lockstep::inline v0::data
