#include "strategy/wrapper/reducer_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "device/error.h"

namespace lockstep::strategy {
namespace {

void require(bool fits, const char* needed, double given) {
  if (!fits) throw Error(ErrorCategory::input, "distributed_optimizer", needed, fmt::format("got {}", given));
}

}  // namespace

std::size_t ParameterLayout::elements() const {
  return static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

void check_options(const ReducerOptions& options) {
  require(options.backward_passes_per_step >= 1, "needed backward_passes_per_step of at least 1",
          options.backward_passes_per_step);
  require(std::isfinite(options.predivide_factor) && options.predivide_factor >= 0,
          "needed a predivide_factor above 0, or 0 for the world size", options.predivide_factor);
  require(options.predivide_factor == 0 || options.reduction == Reduction::average,
          "needed reduction average for a predivide_factor: a sum is not divided", options.predivide_factor);
  require(std::isfinite(options.clip_norm) && options.clip_norm >= 0, "needed a clip_norm of at least 0",
          options.clip_norm);
  require(options.group_count >= 0, "needed a group_count of at least 0", options.group_count);
  require(options.group_count == 0 || options.groups.empty(), "needed either groups or group_count, not both",
          options.group_count);
}

std::string to_string(const ReducerOptions& options) {
  return fmt::format(
      "{}{}, backward_passes_per_step {}, {}, buckets of {} and {} bytes, groups {} {}, predivide_factor {}, clip_norm "
      "{}",
      options.reduction == Reduction::average ? "average" : "sum", options.average_passes ? "" : " of added passes",
      options.backward_passes_per_step, allreduce::to_string(options.compression), options.first_bucket_bytes,
      options.bucket_bytes, options.group_count, options.groups, options.predivide_factor, options.clip_norm);
}

}  // namespace lockstep::strategy
