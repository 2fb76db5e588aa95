// ImageRecipe as a list of steps: "random-crop=160,flip,normalize=imagenet".
#include "lockstep/data/image/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::string_view kRecipeWhere = "images";

constexpr auto kSwitch = enum_names<bool>({{true, "on"}, {false, "off"}});

/// A step such as "resize=256" or "flip", whose value is its name.
struct StepText : SpecItem {
  const std::string& name() const { return key.empty() ? values.front() : key; }

  [[noreturn]] void refuse(const std::string& expected) const {
    throw Error(ErrorCategory::input, kRecipeWhere, "expected " + expected,
                fmt::format("got \"{}\"", text));
  }

  /// The values as numbers, `min_count` to `max_count` of them.
  std::vector<double> numbers(std::size_t min_count, std::size_t max_count,
                              std::string_view form) const {
    std::vector<double> numbers;
    for (const std::string& one : values) {
      const auto number = parse_number<double>(one);
      if (!number || !std::isfinite(*number)) refuse(fmt::format("{}={}", name(), form));
      numbers.push_back(*number);
    }
    if (numbers.size() < min_count || numbers.size() > max_count)
      refuse(fmt::format("{}={}", name(), form));
    return numbers;
  }

  /// Height and width of "224" or "224x160", or one number if `max_count` is 1.
  std::array<int, 2> pixels(std::size_t max_count) const {
    const auto sides = parse_extents(value());
    if (!sides || sides->size() > max_count || std::ranges::max(*sides) > ImageRecipe::kMaxSide)
      refuse(fmt::format("{}={} in whole numbers of 1 to {} pixels", name(),
                         max_count == 1 ? "N" : "N or HxW", ImageRecipe::kMaxSide));
    return {static_cast<int>(sides->front()), static_cast<int>(sides->back())};
  }

  std::array<double, 2> range() const {
    const auto ends = numbers(2, 2, "A+B, the ends of a range");
    return {ends[0], ends[1]};
  }

  double probability() const {
    return key.empty() ? 0.5 : numbers(1, 1, "P, a probability").front();
  }

  RandomResizedCrop& random_crop(ImageRecipe& recipe) const {
    auto* const crop = std::get_if<RandomResizedCrop>(&recipe.geometry);
    if (crop == nullptr) refuse(fmt::format("random-crop=SIZE before {}", name()));
    return *crop;
  }
};

void set_size(ImageRecipe& recipe, const std::array<int, 2>& size) {
  recipe.height = size[0];
  recipe.width = size[1];
}

/// Sets the geometry, which only one step may do.
void set_geometry(ImageRecipe& recipe, const StepText& step,
                  const decltype(ImageRecipe::geometry)& geometry) {
  if (!std::holds_alternative<AsStored>(recipe.geometry))
    step.refuse("one of the steps resize, pad and random-crop");
  recipe.geometry = geometry;
}

void set_crop(ImageRecipe& recipe, const StepText& step) {
  if (!std::holds_alternative<ResizedCenter>(recipe.geometry) &&
      !std::holds_alternative<PaddedCrop>(recipe.geometry))
    step.refuse("resize=N or pad=N before crop");
  set_size(recipe, step.pixels(2));
}

void set_color(ImageRecipe& recipe, const StepText& step) {
  const auto strengths = step.numbers(1, 3, "S or B+C+S, the strengths of the jitter");
  if (strengths.size() == 2) step.refuse("color=S or color=B+C+S");
  const bool same = strengths.size() == 1;
  recipe.jitter = {.brightness = strengths[0],
                   .contrast = strengths[same ? 0 : 1],
                   .saturation = strengths[same ? 0 : 2]};
}

void set_normalization(ImageRecipe& recipe, const StepText& step) {
  if (step.value() == "imagenet") {
    recipe.normalization = kImageNetNormalization;
  } else if (step.value() == "cifar10") {
    recipe.normalization = kCifar10Normalization;
  } else {
    const auto values = step.numbers(2, 2, "imagenet, cifar10 or MEAN+DEVIATION");
    recipe.normalization.channels = recipe.channels;
    recipe.normalization.mean.fill(static_cast<float>(values[0]));
    recipe.normalization.deviation.fill(static_cast<float>(values[1]));
  }
}

struct Step {
  std::string_view name;
  bool is_random;  // skipped in the evaluation, like the steps that choose the crop
  void (*apply)(ImageRecipe& recipe, const StepText& step);
};

/// In the order in which they are applied.
constexpr std::array<Step, 14> kSteps = {{
    {"resize", true,
     [](ImageRecipe& recipe, const StepText& step) {
       set_size(recipe, step.pixels(1));
       set_geometry(recipe, step, ResizedCenter{recipe.height});
       recipe.filter = Filter::antialiased;
     }},
    {"pad", true,
     [](ImageRecipe& recipe, const StepText& step) {
       set_geometry(recipe, step, PaddedCrop{.padding = step.pixels(1)[0]});
     }},
    {"random-crop", true,
     [](ImageRecipe& recipe, const StepText& step) {
       set_size(recipe, step.pixels(2));
       set_geometry(recipe, step, RandomResizedCrop{});
       recipe.scaled_decoding = true;
     }},
    {"crop", true, set_crop},
    {"scale", true,
     [](ImageRecipe& recipe, const StepText& step) {
       step.random_crop(recipe).range.area = step.range();
     }},
    {"ratio", true,
     [](ImageRecipe& recipe, const StepText& step) {
       step.random_crop(recipe).range.ratio = step.range();
     }},
    {"filter", false,
     [](ImageRecipe& recipe, const StepText& step) { recipe.filter = parse_filter(step.value()); }},
    {"exif", false,
     [](ImageRecipe& recipe, const StepText& step) {
       recipe.exif = kSwitch.parse(fmt::format("{}: exif", kRecipeWhere), step.value());
     }},
    {"gray", false,
     [](ImageRecipe& recipe, const StepText& step) {
       if (!step.key.empty()) step.refuse("gray without a value");
       recipe.channels = 1;
     }},
    {"flip", true,
     [](ImageRecipe& recipe, const StepText& step) { recipe.flip = step.probability(); }},
    {"color", true, set_color},
    {"normalize", false, set_normalization},
    {"cutout", true,
     [](ImageRecipe& recipe, const StepText& step) { recipe.cutout = step.pixels(1)[0]; }},
    {"erase", true,
     [](ImageRecipe& recipe, const StepText& step) { recipe.erase = step.probability(); }},
}};

std::array<std::string_view, kSteps.size()> step_names() {
  std::array<std::string_view, kSteps.size()> names;
  std::ranges::transform(kSteps, names.begin(), &Step::name);
  return names;
}

std::vector<StepText> steps_of(std::string_view text) {
  std::vector<StepText> steps;
  const Spec spec = Spec::of_items(kRecipeWhere, text);
  for (const SpecItem& item : spec.items()) steps.push_back({item});
  return steps;
}

/// The recipe of steps for training or for evaluation.
ImageRecipe recipe_of_part(std::string_view text) {
  ImageRecipe recipe{.name = std::string(text)};
  const Step* previous = nullptr;
  for (const StepText& step : steps_of(text)) {
    const auto* const found = std::ranges::find(kSteps, step.name(), &Step::name);
    if (found == kSteps.end()) refuse_name(kRecipeWhere, step.name(), step_names());
    if (previous != nullptr && found <= previous)
      step.refuse(found == previous ? fmt::format("{} once", found->name)
                                    : fmt::format("{} before {}", found->name, previous->name));
    found->apply(recipe, step);
    previous = found;
  }
  if (recipe.height == 0)
    throw Error(ErrorCategory::input, kRecipeWhere,
                "expected a size: resize=N, pad=N,crop=SIZE or random-crop=SIZE",
                fmt::format("got \"{}\"", text));
  recipe.check();
  return recipe;
}

}  // namespace

bool ImageRecipe::begins_with_step(std::string_view text) {
  const std::string_view first = text.substr(0, text.find_first_of(",=:"));
  return std::ranges::find(kSteps, first, &Step::name) != kSteps.end();
}

ImageRecipe ImageRecipe::parse_steps(std::string_view text) {
  const std::size_t colon = std::min(text.find(kEvaluation), text.size());
  ImageRecipe recipe = recipe_of_part(text.substr(0, colon));
  recipe.name = text;
  if (colon == text.size()) return recipe;
  const std::string_view after = text.substr(colon + 1);
  const ImageRecipe test = recipe_of_part(after);
  ImageRecipe certain = test.for_test();
  certain.name = test.name;
  if (certain != test)
    throw Error(ErrorCategory::input, kRecipeWhere, "expected an evaluation without random steps",
                fmt::format("got \"{}\"", after));
  if (test.height != recipe.height || test.width != recipe.width ||
      test.channels != recipe.channels)
    throw Error(ErrorCategory::input, kRecipeWhere, "expected one size for training and evaluation",
                fmt::format("got {}x{}x{} and {}x{}x{}", recipe.height, recipe.width,
                            recipe.channels, test.height, test.width, test.channels));
  return recipe;
}

std::string ImageRecipe::evaluation_steps(std::string_view steps, int shorter, int height,
                                          int width) {
  std::string text = fmt::format("resize={}", shorter);
  if (height != width)
    text += fmt::format(",crop={}x{}", height, width);
  else if (height != shorter)
    text += fmt::format(",crop={}", height);
  for (const StepText& step : steps_of(steps)) {
    const auto* const found = std::ranges::find(kSteps, step.name(), &Step::name);
    if (found != kSteps.end() && !found->is_random) text += fmt::format(",{}", step.text);
  }
  return text;
}

}  // namespace lockstep::inline v0::data
