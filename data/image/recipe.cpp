#include "data/image/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "device/error.h"

namespace lockstep::data {
namespace {

ImageRecipe cifar10_test() {
  return {.name = "cifar10-test", .height = 32, .width = 32, .normalization = kCifar10Normalization};
}

ImageRecipe cifar10_train() {
  ImageRecipe recipe = cifar10_test();
  recipe.name = "cifar10-train";
  recipe.geometry = PaddedCrop{4};
  recipe.flip = 0.5;
  return recipe;
}

ImageRecipe imagenet_train() {
  return {.name = "imagenet-train",
          .height = 224,
          .width = 224,
          .geometry = RandomResizedCrop{},
          .scaled_decoding = true,
          .flip = 0.5,
          .normalization = kImageNetNormalization};
}

ImageRecipe imagenet_test() {
  return {.name = "imagenet-test",
          .height = 224,
          .width = 224,
          .geometry = ResizedCenter{256},
          .filter = Filter::antialiased,
          .normalization = kImageNetNormalization};
}

std::vector<ImageRecipe> all_recipes() {
  return {cifar10_train(), cifar10_test(), imagenet_train(), imagenet_test(), ImageRecipe{}};
}

}  // namespace

std::vector<std::string> ImageRecipe::names() {
  std::vector<std::string> names;
  for (const ImageRecipe& recipe : all_recipes()) names.push_back(recipe.name);
  return names;
}

ImageRecipe ImageRecipe::parse(std::string_view name, int height, int width, int channels) {
  for (ImageRecipe recipe : all_recipes()) {
    if (recipe.name != name) continue;
    if (name == "none") {
      recipe.height = height;
      recipe.width = width;
      recipe.channels = channels;
    }
    return recipe;
  }
  throw Error(ErrorCategory::input, "image recipe", fmt::format("needed one of {}", fmt::join(names(), ", ")),
              fmt::format("got \"{}\"", name));
}

}  // namespace lockstep::data
