#include "lockstep/data/image/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

ImageRecipe cifar10_test() {
  return {
      .name = "cifar10-test", .height = 32, .width = 32, .normalization = kCifar10Normalization};
}

ImageRecipe cifar10_train() {
  ImageRecipe recipe = cifar10_test();
  recipe.name = "cifar10-train";
  recipe.geometry = PaddedCrop{.padding = 4, .exact = true};
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
  require(least > 0 && least <= most && most <= 1, "expected area fractions above 0 and at most 1",
          fmt::format("got {} to {}", least, most));
  const auto& [narrowest, widest] = range.ratio;
  require(narrowest >= 0.2 && narrowest <= widest && widest <= 5, "expected ratios from 1/5 to 5",
          fmt::format("got {} to {}", narrowest, widest));
}

/// Much larger than any image, and small enough to prevent integer overflow.
constexpr int kMaxSide = 1 << 15;
constexpr double kStrongestJitter = 10;

std::string geometry_text(const ImageRecipe& recipe) {
  const auto range_text = [](const std::array<double, 2>& range) {
    return fmt::format("{} to {}", range[0], range[1]);
  };
  if (const auto* padded = std::get_if<PaddedCrop>(&recipe.geometry))
    return fmt::format("crops with a border of {}{}", padded->padding,
                       padded->exact ? "" : ", of any image");
  if (const auto* random = std::get_if<RandomResizedCrop>(&recipe.geometry))
    return fmt::format("random resized crops of {}, ratio {}", range_text(random->range.area),
                       range_text(random->range.ratio));
  if (const auto* center = std::get_if<ResizedCenter>(&recipe.geometry))
    return fmt::format("the middle of the shorter side resized to {}", center->shorter);
  return "as stored";
}

std::string filter_name(Filter filter) {
  switch (filter) {
    case Filter::bilinear:
      return "bilinear";
    case Filter::antialiased:
      return "antialiased";
    case Filter::area:
      break;
  }
  return "area";
}

std::string normalization_text(const ChannelNormalization& normalization) {
  const auto channels = static_cast<std::size_t>(normalization.channels);
  if (channels == 0) return "not normalized";
  return fmt::format("normalized by ({}) and ({})",
                     fmt::join(std::span(normalization.mean).first(channels), ", "),
                     fmt::join(std::span(normalization.deviation).first(channels), ", "));
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
  throw Error(ErrorCategory::input, "image recipe",
              fmt::format("expected one of {}", fmt::join(names(), ", ")),
              fmt::format("got \"{}\"", name));
}

std::string ImageRecipe::description() const {
  ImageRecipe usual{.name = name, .height = height, .width = width, .channels = channels};
  for (const ImageRecipe& recipe : all_recipes())
    if (recipe.name == name && name != "none") usual = recipe;
  std::string text = name;
  const auto tell = [&text](bool differs, const std::string& what) {
    if (differs) text += ", " + what;
  };
  tell(height != usual.height || width != usual.width || channels != usual.channels,
       fmt::format("{}x{}x{}", height, width, channels));
  tell(geometry != usual.geometry, geometry_text(*this));
  tell(filter != usual.filter, filter_name(filter));
  tell(scaled_decoding != usual.scaled_decoding,
       scaled_decoding ? "decoded at less" : "decoded in full");
  tell(flip != usual.flip, fmt::format("flip {}", flip));
  tell(jitter != usual.jitter,
       fmt::format("jitter {}, {}, {}", jitter.brightness, jitter.contrast, jitter.saturation));
  tell(cutout != usual.cutout, fmt::format("cutout {}", cutout));
  tell(normalization != usual.normalization, normalization_text(normalization));
  return text;
}

void ImageRecipe::check() const {
  const auto require = [this](bool sensible, std::string_view expected, const std::string& actual) {
    if (!sensible)
      throw Error(ErrorCategory::input, fmt::format("image recipe {}", name), expected, actual);
  };
  require(height > 0 && width > 0, "expected an output of at least 1 x 1",
          fmt::format("got {} x {}", height, width));
  require(height <= kMaxSide && width <= kMaxSide,
          fmt::format("expected an output of at most {0} x {0}", kMaxSide),
          fmt::format("got {} x {}", height, width));
  require(channels == 1 || channels == 3, "expected 1 or 3 channels",
          fmt::format("got {}", channels));
  require(flip >= 0 && flip <= 1, "expected a flip probability from 0 to 1",
          fmt::format("got {}", flip));
  const auto require_pixels = [&](const char* what, int pixels) {
    require(pixels >= 0 && pixels <= kMaxSide,
            fmt::format("expected a {} of 0 to {} pixels", what, kMaxSide),
            fmt::format("got {}", pixels));
  };
  require_pixels("cutout", cutout);
  for (const auto& [what, strength] :
       {std::pair("brightness", jitter.brightness), std::pair("contrast", jitter.contrast),
        std::pair("saturation", jitter.saturation)})
    require(strength >= 0 && strength <= kStrongestJitter,
            fmt::format("expected a jitter of {} from 0 to {}", what, kStrongestJitter),
            fmt::format("got {}", strength));
  require(normalization.channels == 0 || normalization.channels == channels,
          "expected a normalization of all channels or none",
          fmt::format("got one of {}", normalization.channels));
  const auto deviations = std::span(normalization.deviation).first(normalization.channels);
  require(std::ranges::all_of(deviations, [](float deviation) { return deviation > 0; }),
          "expected deviations above 0", fmt::format("got {}", fmt::join(deviations, ", ")));
  if (const auto* padded = std::get_if<PaddedCrop>(&geometry))
    require_pixels("padding", padded->padding);
  if (const auto* random = std::get_if<RandomResizedCrop>(&geometry))
    check_range(random->range, require);
  if (const auto* center = std::get_if<ResizedCenter>(&geometry)) {
    require(center->shorter >= std::max(height, width),
            "expected a shorter side no shorter than the output",
            fmt::format("got {} for {} x {}", center->shorter, height, width));
  }
}

}  // namespace lockstep::data
