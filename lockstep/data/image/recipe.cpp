#include "lockstep/data/image/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;

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
          .geometry = ResizedCenter{},
          .filter = Filter::antialiased,
          .normalization = kImageNetNormalization};
}

template <typename Require>
void check_range(const ResizedCropRange& range, Require require) {
  const auto& [smallest, largest] = range.area;
  require(smallest > 0 && smallest <= largest && largest <= 1,
          "expected area fractions above 0 and at most 1",
          fmt::format("got {} to {}", smallest, largest));
  const auto& [narrowest, widest] = range.ratio;
  require(narrowest >= 0.2 && narrowest <= widest && widest <= 5, "expected ratios from 1/5 to 5",
          fmt::format("got {} to {}", narrowest, widest));
}

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
    return fmt::format("the middle of the shorter side resized to {}",
                       recipe.shorter_side(*center));
  return "as stored";
}

constexpr auto kFilters = enum_names<Filter>(
    {{Filter::bilinear, "bilinear"}, {Filter::antialiased, "antialiased"}, {Filter::area, "area"}});

std::string normalization_text(const ChannelNormalization& normalization) {
  const auto channels = static_cast<std::size_t>(normalization.channels);
  if (channels == 0) return "not normalized";
  return fmt::format("normalized by ({}) and ({})",
                     fmt::join(std::span(normalization.mean).first(channels), ", "),
                     fmt::join(std::span(normalization.deviation).first(channels), ", "));
}

/// A number of pixels, at most that of a valid recipe.
int pixels_member(const json& object, const char* key) {
  const auto value = json_member<json>(object, key);
  if (!value.is_number_integer() || value < 0 || value > 2 * ImageRecipe::kMaxSide)
    throw std::invalid_argument(fmt::format("its \"{}\" is {}", key, describe_json(value)));
  return value.get<int>();
}

decltype(ImageRecipe::geometry) read_geometry(const json& object) {
  const auto kind = json_member<std::string>(object, "kind");
  if (kind == "as-stored") return AsStored{};
  if (kind == "padded-crop")
    return PaddedCrop{.padding = pixels_member(object, "padding"),
                      .exact = json_member<bool>(object, "exact")};
  if (kind == "random-resized-crop")
    return RandomResizedCrop{{.area = json_member<std::array<double, 2>>(object, "area"),
                              .ratio = json_member<std::array<double, 2>>(object, "ratio")}};
  if (kind == "resized-center") return ResizedCenter{pixels_member(object, "shorter")};
  throw std::invalid_argument("its \"kind\" is " + describe_json(object.at("kind")));
}

std::vector<ImageRecipe> all_recipes() {
  return {cifar10_train(), cifar10_test(), imagenet_train(), imagenet_test(), ImageRecipe{}};
}

}  // namespace

Filter parse_filter(std::string_view name) { return kFilters.parse("filter", name); }

std::vector<std::string> ImageRecipe::names() {
  std::vector<std::string> names;
  for (const ImageRecipe& recipe : all_recipes()) names.push_back(recipe.name);
  return names;
}

ImageRecipe ImageRecipe::parse(std::string_view name, int height, int width, int channels) {
  for (ImageRecipe recipe : all_recipes()) {
    if (recipe.name != name) continue;
    const bool has_size = height != 0 || width != 0;
    if (name != "none" && channels != recipe.channels)
      throw Error(ErrorCategory::input, fmt::format("image recipe {}", name),
                  fmt::format("expected {} channels", recipe.channels),
                  fmt::format("got {}", channels));
    if (name.starts_with("cifar10") && has_size &&
        (height != recipe.height || width != recipe.width))
      throw Error(ErrorCategory::input, fmt::format("image recipe {}", name),
                  fmt::format("expected an output of {} x {}", recipe.height, recipe.width),
                  fmt::format("got {} x {}", height, width));
    if (name == "none" || has_size) {
      recipe.height = height;
      recipe.width = width;
    }
    recipe.channels = channels;
    return recipe;
  }
  if (begins_with_step(name) || name.find_first_of(",=:") != std::string_view::npos)
    return parse_steps(name);
  throw Error(ErrorCategory::input, "image recipe",
              fmt::format("expected one of {}", fmt::join(names(), ", ")),
              fmt::format("got \"{}\"", name));
}

ImageRecipe ImageRecipe::for_test() const {
  constexpr std::string_view kTrain = "-train";
  const bool has_steps = begins_with_step(name);
  if (const std::size_t colon = name.find(kEvaluation); has_steps && colon != std::string::npos)
    return parse_steps(std::string_view(name).substr(colon + 1));
  ImageRecipe test = *this;
  if (name.ends_with(kTrain))
    test.name.replace(name.size() - kTrain.size(), kTrain.size(), "-test");
  if (std::holds_alternative<PaddedCrop>(geometry)) test.geometry = AsStored{};
  if (std::holds_alternative<RandomResizedCrop>(geometry)) {
    test.geometry = ResizedCenter{};
    test.filter = Filter::antialiased;
  }
  test.scaled_decoding = false;
  test.flip = 0;
  test.jitter = {};
  test.cutout = 0;
  test.erase = 0;
  if (!has_steps || std::holds_alternative<AsStored>(geometry)) return test;
  const auto* const center = std::get_if<ResizedCenter>(&test.geometry);
  const int shorter = center == nullptr ? std::max(height, width) : shorter_side(*center);
  test.name = evaluation_steps(name, shorter, height, width);
  test.geometry = ResizedCenter{shorter};
  if (!std::holds_alternative<ResizedCenter>(geometry)) test.filter = parse_steps(test.name).filter;
  return test;
}

int ImageRecipe::shorter_side(const ResizedCenter& center) const {
  return center.shorter != 0 ? center.shorter : std::max(height, width) * 8 / 7;  // 256 / 224
}

std::string ImageRecipe::description() const {
  ImageRecipe usual{.name = name, .height = height, .width = width, .channels = channels};
  for (const ImageRecipe& recipe : all_recipes())
    if (recipe.name == name && name != "none") usual = recipe;
  if (begins_with_step(name)) usual = parse_steps(name);
  std::string text = name;
  const auto add_if = [&text](bool differs, const std::string& what) {
    if (differs) text += ", " + what;
  };
  add_if(height != usual.height || width != usual.width || channels != usual.channels,
         fmt::format("{}x{}x{}", height, width, channels));
  add_if(geometry != usual.geometry, geometry_text(*this));
  add_if(filter != usual.filter, std::string(kFilters.name(filter)));
  add_if(exif != usual.exif, exif ? "turned as EXIF says" : "not turned as EXIF says");
  add_if(scaled_decoding != usual.scaled_decoding,
         scaled_decoding ? "decoded at less" : "decoded in full");
  add_if(flip != usual.flip, fmt::format("flip {}", flip));
  add_if(jitter != usual.jitter,
         fmt::format("jitter {}, {}, {}", jitter.brightness, jitter.contrast, jitter.saturation));
  add_if(cutout != usual.cutout, fmt::format("cutout {}", cutout));
  add_if(erase != usual.erase, fmt::format("erase {}", erase));
  add_if(normalization != usual.normalization, normalization_text(normalization));
  return text;
}

nlohmann::json ImageRecipe::to_json() const {
  json shape = {{"kind", "as-stored"}};
  if (const auto* padded = std::get_if<PaddedCrop>(&geometry))
    shape = {{"kind", "padded-crop"}, {"padding", padded->padding}, {"exact", padded->exact}};
  if (const auto* random = std::get_if<RandomResizedCrop>(&geometry))
    shape = {{"kind", "random-resized-crop"},
             {"area", random->range.area},
             {"ratio", random->range.ratio}};
  if (const auto* center = std::get_if<ResizedCenter>(&geometry))
    shape = {{"kind", "resized-center"}, {"shorter", center->shorter}};
  return {{"name", name},
          {"height", height},
          {"width", width},
          {"channels", channels},
          {"geometry", shape},
          {"filter", kFilters.name(filter)},
          {"exif", exif},
          {"scaled_decoding", scaled_decoding},
          {"flip", flip},
          {"jitter", {jitter.brightness, jitter.contrast, jitter.saturation}},
          {"cutout", cutout},
          {"erase", erase},
          {"normalization",
           {{"channels", normalization.channels},
            {"mean", normalization.mean},
            {"deviation", normalization.deviation}}}};
}

ImageRecipe ImageRecipe::from_json(const nlohmann::json& json) {
  ImageRecipe recipe;
  recipe.name = json_member<std::string>(json, "name");
  if (begins_with_step(recipe.name)) try {
      parse_steps(recipe.name);  // from which for_test() and description() are derived
    } catch (const Error&) {
      throw std::invalid_argument("its \"name\" is " + describe_json(json["name"]));
    }
  recipe.height = pixels_member(json, "height");
  recipe.width = pixels_member(json, "width");
  recipe.channels = pixels_member(json, "channels");
  recipe.geometry = read_geometry(json_member<nlohmann::json>(json, "geometry"));
  const auto filter = kFilters.find(json_member<std::string>(json, "filter"));
  if (!filter) throw std::invalid_argument("its \"filter\" is unknown");
  recipe.filter = *filter;
  recipe.exif = json_member<bool>(json, "exif");
  recipe.scaled_decoding = json_member<bool>(json, "scaled_decoding");
  recipe.flip = json_member<double>(json, "flip");
  const auto jitter = json_member<std::array<double, 3>>(json, "jitter");
  recipe.jitter = {.brightness = jitter[0], .contrast = jitter[1], .saturation = jitter[2]};
  recipe.cutout = pixels_member(json, "cutout");
  if (json.contains("erase")) recipe.erase = json_member<double>(json, "erase");
  const auto normalization = json_member<nlohmann::json>(json, "normalization");
  using Values = decltype(ChannelNormalization::mean);
  recipe.normalization = {.channels = pixels_member(normalization, "channels"),
                          .mean = json_member<Values>(normalization, "mean"),
                          .deviation = json_member<Values>(normalization, "deviation")};
  recipe.check();
  return recipe;
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
  require(erase >= 0 && erase <= 1, "expected a probability of erasing from 0 to 1",
          fmt::format("got {}", erase));
  require(cutout == 0 || erase == 0, "expected cutout or erase", "got both");
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
    require(shorter_side(*center) >= std::max(height, width),
            "expected a shorter side no shorter than the output",
            fmt::format("got {} for {} x {}", center->shorter, height, width));
  }
}

}  // namespace lockstep::inline v0::data
