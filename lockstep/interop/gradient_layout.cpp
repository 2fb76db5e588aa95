#include "lockstep/interop/gradient_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "lockstep/allreduce/buckets/layout.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::interop {
namespace {

void require(bool fits, const char* expected, double actual) {
  if (!fits)
    throw Error(ErrorCategory::input, "distributed_optimizer", expected,
                fmt::format("got {}", actual));
}

}  // namespace

std::size_t ParameterLayout::elements() const {
  return static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

void check_options(const ReducerOptions& options) {
  require(options.backward_passes_per_step >= 1, "expected backward_passes_per_step of at least 1",
          options.backward_passes_per_step);
  require(std::isfinite(options.predivide_factor) && options.predivide_factor >= 0,
          "expected a predivide_factor above 0, or 0 for the world size", options.predivide_factor);
  require(options.predivide_factor == 0 || options.reduction == Reduction::average,
          "expected reduction average for a predivide_factor: a sum is not divided",
          options.predivide_factor);
  require(std::isfinite(options.clip_norm) && options.clip_norm >= 0,
          "expected a clip_norm of at least 0", options.clip_norm);
  require(options.group_count >= 0, "expected a group_count of at least 0", options.group_count);
  require(options.group_count == 0 || options.groups.empty(),
          "expected either groups or group_count, not both", options.group_count);
}

std::string to_string(const ReducerOptions& options) {
  return fmt::format(
      "{}{}, backward_passes_per_step {}, {}, buckets of {} and {} bytes, groups {} {}, "
      "predivide_factor {}, clip_norm {}{}",
      options.reduction == Reduction::average ? "average" : "sum",
      options.average_passes ? "" : " of added passes", options.backward_passes_per_step,
      allreduce::to_string(options.compression), options.first_bucket_bytes, options.bucket_bytes,
      options.group_count, options.groups, options.predivide_factor, options.clip_norm,
      options.skip_non_finite ? ", skip_non_finite" : "");
}

namespace {

using Indices = std::vector<std::size_t>;
using IndexByName = std::unordered_map<std::string_view, std::size_t>;

/// `count` elements of T, rounded up to whole cache lines.
template <typename T>
std::size_t whole_lines(std::size_t count) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  return (count + kLine - 1) / kLine * kLine;
}

[[noreturn]] void refuse(const std::string& expected, const std::string& actual) {
  throw Error(ErrorCategory::input, "distributed_optimizer", expected, actual);
}

IndexByName index_by_name(std::span<const ParameterLayout> parameters) {
  IndexByName index;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!index.emplace(parameters[i].name, i).second)
      refuse("expected a unique name for each parameter",
             fmt::format("parameters {} and {} are both named {}", index[parameters[i].name], i,
                         parameters[i].name));
  return index;
}

std::vector<Indices> consecutive_groups(std::size_t parameters, std::size_t count) {
  std::vector<Indices> groups(count);
  for (std::size_t i = 0; i < parameters; ++i) groups[i * count / parameters].push_back(i);
  return groups;
}

std::vector<Indices> named_groups(const IndexByName& index,
                                  const std::vector<std::vector<std::string>>& names) {
  std::vector<Indices> groups;
  std::vector<bool> is_grouped(index.size());
  for (const std::vector<std::string>& group : names) {
    Indices& members = groups.emplace_back();
    for (const std::string& name : group) {
      const auto found = index.find(name);
      if (found == index.end())
        refuse("expected parameter names in groups", fmt::format("{} is not a parameter", name));
      if (is_grouped[found->second])
        refuse("expected each parameter in at most one group", fmt::format("{} is in two", name));
      is_grouped[found->second] = true;
      members.push_back(found->second);
    }
  }
  return groups;
}

/// The group index of each parameter; `none` for parameters in no group.
Indices group_of_each(std::size_t parameters, const std::vector<Indices>& groups,
                      std::size_t none) {
  Indices group_of(parameters, none);
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (const std::size_t parameter : groups[group]) group_of[parameter] = group;
  return group_of;
}

}  // namespace

GradientLayout make_gradient_layout(std::span<const ParameterLayout> parameters,
                                    const ReducerOptions& options) {
  const IndexByName index = index_by_name(parameters);
  const std::vector<Indices> groups =
      options.group_count > 0
          ? consecutive_groups(parameters.size(), static_cast<std::size_t>(options.group_count))
          : named_groups(index, options.groups);
  const std::size_t none = groups.size();
  const Indices group_of = group_of_each(parameters.size(), groups, none);

  GradientLayout layout{.offsets = Indices(parameters.size()),
                        .entries = Indices(parameters.size())};
  std::vector<bool> placed(parameters.size());
  const auto place = [&](std::size_t parameter) {
    placed[parameter] = true;
    layout.offsets[parameter] = layout.size;
    layout.entries[parameter] = layout.begins.size() - 1;
    layout.size += whole_lines<float>(parameters[parameter].elements());
    ++layout.counts.back();
  };
  for (std::size_t parameter = parameters.size(); parameter-- > 0;) {
    if (placed[parameter]) continue;
    if (parameters[parameter].is_float64) {
      layout.offsets[parameter] = layout.wide_size;
      layout.entries[parameter] = GradientLayout::kNoEntry;
      layout.wide_size += whole_lines<double>(parameters[parameter].elements());
      continue;
    }
    layout.begins.push_back(layout.size);
    layout.counts.push_back(0);
    if (group_of[parameter] == none) {
      place(parameter);
      continue;
    }
    for (const std::size_t member : groups[group_of[parameter]])
      if (!parameters[member].is_float64) place(member);
  }
  return layout;
}

std::vector<allreduce::LayoutEntry> describe(std::span<const ParameterLayout> parameters) {
  std::vector<allreduce::LayoutEntry> entries;
  for (const ParameterLayout& parameter : parameters)
    entries.push_back({fmt::format("{} [{}]{}", parameter.name, fmt::join(parameter.shape, ", "),
                                   parameter.is_float64 ? " float64" : ""),
                       parameter.elements()});
  return entries;
}

}  // namespace lockstep::inline v0::interop
