#include "lockstep/train/step/step_health.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::train {
namespace {

bool is_power_of_ten(std::int64_t count) {
  while (count % 10 == 0) count /= 10;
  return count == 1;
}

}  // namespace

std::optional<std::string> StepHealth::add(const strategy::StepResult& result, std::int64_t step,
                                           float next_scale) {
  if (result.weightless) return std::nullopt;
  last_was_skipped_ = !result.applied;
  if (result.applied) {
    skips_in_a_row_ = 0;
    return std::nullopt;
  }
  Logger& log = *strategy_.session().logger();
  if (result.overflow) {
    if (strategy_.is_chief())
      log.info(fmt::format("step {} skipped: the gradient overflowed; loss scale {} becomes {}",
                           step, result.loss_scale, next_scale));
    return std::nullopt;
  }
  const std::string why = reason(result);
  ++skipped_steps_;
  ++skips_in_a_row_;
  if (strategy_.is_chief() && is_power_of_ten(skips_in_a_row_))
    log.warn(
        fmt::format("step {} skipped: {}{}", step, why,
                    skips_in_a_row_ == 1 ? "" : fmt::format("; {} in a row", skips_in_a_row_)));
  if (skips_in_a_row_ != kMaxSkipsInARow) return std::nullopt;
  return fmt::format("{} skipped steps in a row, the last one ({}) for a {}", kMaxSkipsInARow, step,
                     why);
}

std::string StepHealth::reason(const strategy::StepResult& result) const {
  std::string where;
  for (const int replica : result.failed) {
    const job::Placement& place = strategy_.placements()[replica];
    where += fmt::format("{}{}", where.empty() ? "" : ", ", place.rank);
    if (strategy_.num_replicas_in_sync() > strategy_.session().size())
      where += fmt::format(" (replica {})", replica);
  }
  std::string reason = result.report.is_finite ? "non-finite gradient" : "non-finite loss";
  if (!where.empty()) reason += fmt::format(" on rank {}", where);
  return reason;
}

std::optional<std::string> StepHealth::at_end(int signal) const {
  if (signal != 0 || is_healthy()) return std::nullopt;
  return fmt::format("{} at the end", counted(skips_in_a_row_, "skipped step"));
}

}  // namespace lockstep::inline v0::train
