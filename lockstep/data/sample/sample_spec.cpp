#include "lockstep/data/sample/sample_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::data {

std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(extent, 0), &count))
      return std::numeric_limits<std::int64_t>::max();
  return count;
}

SampleSpec SampleSpec::classification(std::vector<std::int64_t> shape, std::int64_t classes) {
  return {.inputs = {{.name = "features", .shape = std::move(shape)}},
          .targets = {{.name = "label", .type = ElementType::int32, .classes = classes}}};
}

SampleSpec SampleSpec::regression(std::vector<std::int64_t> shape, std::int64_t targets) {
  return {.inputs = {{.name = "features", .shape = std::move(shape)}},
          .targets = {{.name = "target", .shape = {targets}}}};
}

const std::vector<std::int64_t>& SampleSpec::shape() const {
  static const std::vector<std::int64_t> none;
  return inputs.empty() ? none : inputs.front().shape;
}

std::int64_t SampleSpec::feature_count() const {
  return inputs.empty() ? 0 : inputs.front().elements();
}

std::int64_t SampleSpec::classes() const { return targets.empty() ? 0 : targets.front().classes; }

std::int64_t SampleSpec::target_count() const {
  if (targets.empty() || targets.front().type != ElementType::float32) return 0;
  return targets.front().elements();
}

bool SampleSpec::is_single() const {
  return inputs.size() == 1 && inputs.front().type == ElementType::float32 && targets.size() == 1 &&
         !weighted && feature_count() > 0 && targets.front().elements() > 0 &&
         (classes() > 0 ? targets.front().elements() == 1 : target_count() > 0);
}

namespace {

/// "[28, 28, 1]", "[?]"
std::string extents_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> extents;
  for (const std::int64_t extent : shape)
    extents.push_back(extent == -1 ? "?" : std::to_string(extent));
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

}  // namespace

std::string to_string(const TensorSpec& tensor) {
  if (tensor.classes > 0)
    return fmt::format("{}{}{} ({} classes)", tensor.name, tensor.shape.empty() ? "" : " ",
                       tensor.shape.empty() ? "" : extents_text(tensor.shape), tensor.classes);
  const bool is_float = tensor.type == ElementType::float32;
  return fmt::format("{}{}{} {}", tensor.name, is_float ? "" : " ",
                     is_float ? "" : to_string(tensor.type), extents_text(tensor.shape));
}

std::string to_string(const SampleSpec& spec) {
  const auto listed = [](const std::vector<TensorSpec>& tensors) {
    std::vector<std::string> texts;
    for (const TensorSpec& tensor : tensors) texts.push_back(to_string(tensor));
    return fmt::format("{}", fmt::join(texts, " and "));
  };
  const std::string inputs = spec.inputs.size() == 1 && spec.inputs[0].type == ElementType::float32
                                 ? extents_text(spec.shape())
                                 : listed(spec.inputs);
  const std::string targets = spec.targets.empty()      ? "without labels"
                              : spec.targets.size() > 1 ? "with " + listed(spec.targets)
                              : spec.classes() > 0 && spec.targets[0].shape.empty()
                                  ? fmt::format("with {} classes", spec.classes())
                              : spec.target_count() > 0
                                  ? fmt::format("with {} targets", spec.target_count())
                                  : "with " + listed(spec.targets);
  return fmt::format("{} {}{}", inputs, targets, spec.weighted ? ", weighted" : "");
}

void check_shape(std::span<const std::int64_t> shape, const std::string& where) {
  std::int64_t count = 1;
  bool is_sensible = !shape.empty();
  for (const std::int64_t extent : shape) {
    is_sensible = is_sensible && extent > 0 && extent <= kMaxElements / count;
    if (!is_sensible) break;
    count *= extent;
  }
  if (!is_sensible)
    throw Error(ErrorCategory::input, where,
                "expected a shape with positive extents and at most 2^28 elements",
                fmt::format("got [{}]", fmt::join(shape, ", ")));
}

namespace {

void check_extents(const TensorSpec& tensor, const std::string& where) {
  std::vector<std::int64_t> known = tensor.shape;
  if (tensor.is_ragged()) known.front() = 1;
  if (std::ranges::count(known, -1) > 0)
    throw Error(ErrorCategory::input, where,
                fmt::format("expected only the first extent of {} to be unknown (-1)", tensor.name),
                fmt::format("got {}", extents_text(tensor.shape)));
  check_shape(known, where);
}

}  // namespace

void check_spec(const SampleSpec& spec, const std::string& where) {
  const auto require = [&](bool condition, std::string_view expected, const std::string& actual) {
    if (!condition) throw Error(ErrorCategory::input, where, expected, actual);
  };
  require(!spec.inputs.empty(), "expected at least one input", "there are none");
  std::set<std::string_view> names;
  const auto check = [&](const TensorSpec& tensor) {
    require(names.insert(tensor.name).second, "expected inputs and targets with different names",
            fmt::format("two are called \"{}\"", tensor.name));
    require(tensor.classes <= std::numeric_limits<std::int32_t>::max(),
            "expected at most 2^31 - 1 classes",
            fmt::format("{} has {}", tensor.name, tensor.classes));
  };
  for (const TensorSpec& input : spec.inputs) {
    check(input);
    require(input.classes == 0 || (input.classes > 0 && input.type == ElementType::int32),
            fmt::format("expected the categories of the input {} as int32", input.name),
            fmt::format("got {} of type {}", input.classes, to_string(input.type)));
    const bool needs_shape = input.type == ElementType::float32 || input.type == ElementType::uint8;
    if (!input.shape.empty() || needs_shape) check_extents(input, where);
  }
  for (const TensorSpec& target : spec.targets) {
    check(target);
    if (!target.shape.empty()) check_extents(target, where);
    const bool has_numbers = target.type == ElementType::int32;
    require(has_numbers == (target.classes != 0) && target.classes >= 0,
            has_numbers
                ? fmt::format("expected at least 1 class of the int32 target {}", target.name)
                : fmt::format("expected int32 class numbers in {}", target.name),
            has_numbers ? fmt::format("got {} classes", target.classes)
                        : fmt::format("the type is {}", to_string(target.type)));
  }
}

void check_fixed_sizes(std::span<const TensorSpec> tensors, const std::string& where) {
  const auto found =
      std::ranges::find_if(tensors, [](const TensorSpec& t) { return !t.has_fixed_size(); });
  if (found == tensors.end()) return;
  throw Error(ErrorCategory::input, where,
              found->type == ElementType::bytes
                  ? "expected tensors of numbers (bytes are for loops of your own, which read them "
                    "from batches)"
                  : "expected tensors with known extents (Dataset::pad(), or \"pad\" in "
                    "dataset.json, cuts or pads all samples to one length)",
              fmt::format("got {}", to_string(*found)));
}

}  // namespace lockstep::inline v0::data
