#include "data/image/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

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

template <typename Require>
void check_range(const ResizedCropRange& range, Require require) {
  const auto& [least, most] = range.area;
  require(least > 0 && least <= most && most <= 1, "needed areas from above 0 to 1",
          fmt::format("got {} to {}", least, most));
  const auto& [narrowest, widest] = range.ratio;
  require(narrowest >= 0.2 && narrowest <= widest && widest <= 5, "needed ratios from 1/5 to 5",
          fmt::format("got {} to {}", narrowest, widest));
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

void ImageRecipe::check() const {
  const auto require = [this](bool sensible, std::string_view needed, const std::string& given) {
    if (!sensible) throw Error(ErrorCategory::input, fmt::format("image recipe {}", name), needed, given);
  };
  require(height > 0 && width > 0, "needed an output of at least 1 x 1", fmt::format("got {} x {}", height, width));
  require(channels == 1 || channels == 3, "needed 1 or 3 channels", fmt::format("got {}", channels));
  require(flip >= 0 && flip <= 1, "needed a share of flips from 0 to 1", fmt::format("got {}", flip));
  require(cutout >= 0, "needed a cutout of at least 0 pixels", fmt::format("got {}", cutout));
  require(normalization.channels == 0 || normalization.channels == channels,
          "needed a normalization of all channels or none", fmt::format("got one of {}", normalization.channels));
  const auto deviations = std::span(normalization.deviation).first(static_cast<std::size_t>(normalization.channels));
  require(std::ranges::all_of(deviations, [](float deviation) { return deviation > 0; }), "needed deviations above 0",
          fmt::format("got {}", fmt::join(deviations, ", ")));
  if (const auto* padded = std::get_if<PaddedCrop>(&geometry))
    require(padded->padding >= 0, "needed a padding of at least 0 pixels", fmt::format("got {}", padded->padding));
  if (const auto* random = std::get_if<RandomResizedCrop>(&geometry)) check_range(random->range, require);
  if (const auto* center = std::get_if<ResizedCenter>(&geometry)) {
    require(center->shorter >= std::max(height, width), "needed a shorter side no shorter than the output",
            fmt::format("got {} for {} x {}", center->shorter, height, width));
  }
}

}  // namespace lockstep::data
