#include "lockstep/strategy/trainer_options.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <variant>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"

namespace lockstep::strategy {

namespace {

float scale(const TrainerOptions& options, std::int64_t global_batch) {
  if (options.base_batch <= 0)
    throw Error(ErrorCategory::input, "lr-scaling",
                "expected the global batch size that the learning rate refers to (--lr-base-batch)",
                fmt::format("got {}", options.base_batch));
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(options.base_batch);
  return static_cast<float>(options.rate_scaling == RateScaling::linear ? ratio : std::sqrt(ratio));
}

float peak_rate(const TrainerOptions& options) {
  const float peak = options.schedule.peak;
  const std::optional<float> rate =
      std::visit([](const auto& chosen) { return chosen.learning_rate; }, options.optimizer);
  if (rate && peak != *rate && peak != model::Schedule{}.peak)
    throw Error(ErrorCategory::input, "trainer",
                "expected one learning rate, of the optimizer or of the schedule",
                fmt::format("got learning_rate {} and peak {}", *rate, peak));
  return rate.value_or(peak);
}

}  // namespace

RateScaling parse_rate_scaling(std::string_view name) {
  static constexpr auto kNames = enum_names<RateScaling>(
      {{RateScaling::none, "none"}, {RateScaling::linear, "linear"}, {RateScaling::sqrt, "sqrt"}});
  return kNames.parse("lr-scaling", name);
}

model::Schedule effective_schedule(const TrainerOptions& options, std::int64_t global_batch,
                                   std::int64_t total_steps) {
  model::Schedule schedule = options.schedule;
  schedule.peak = peak_rate(options);
  if (schedule.total_steps == 0) schedule.total_steps = total_steps;
  if (options.rate_scaling != RateScaling::none) schedule.peak *= scale(options, global_batch);
  schedule.check();
  return schedule;
}

}  // namespace lockstep::strategy
