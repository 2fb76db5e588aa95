#include "lockstep/model/optimizer/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

// Progress after the warm-up: from 0 to 1 at the end of training.
double progress(const Schedule& schedule, std::int64_t step) {
  const std::int64_t length = schedule.total_steps - schedule.warmup_steps;
  return std::clamp(static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(length),
                    0.0, 1.0);
}

// Interpolates from `from` to `to` along half a cosine.
double cosine(double from, double to, double progress) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

// Step s of n has progress s / (n - 1), as in PyTorch: the last step has the final rate.
double one_cycle(const Schedule& schedule, std::int64_t step) {
  constexpr double kStart = 1 / 25.0;
  constexpr double kEnd = kStart / 1e4;
  constexpr double kRisingPart = 0.3;
  const auto total = static_cast<double>(schedule.total_steps);
  const double rising =
      schedule.warmup_steps > 0 ? static_cast<double>(schedule.warmup_steps) : kRisingPart * total;
  const auto place = static_cast<double>(step);
  const double top = rising - 1;
  if (place < top) return cosine(kStart, 1, place / top);
  return cosine(1, kEnd, std::min(1.0, (place - top) / (total - rising)));
}

double fraction(const Schedule& schedule, std::int64_t step) {
  const double end = schedule.final_fraction;
  switch (schedule.kind) {
    case Schedule::Kind::constant:
      return 1;
    case Schedule::Kind::cosine:
      return cosine(1, end, progress(schedule, step));
    case Schedule::Kind::step: {
      const std::int64_t drops = step / schedule.step_every;
      return std::pow(static_cast<double>(schedule.step_factor), static_cast<double>(drops));
    }
    case Schedule::Kind::linear:
      return 1 + (end - 1) * progress(schedule, step);
    case Schedule::Kind::polynomial:
      return end + (1 - end) * std::pow(1 - progress(schedule, step), schedule.power);
    case Schedule::Kind::exponential:
      return std::pow(static_cast<double>(schedule.step_factor),
                      static_cast<double>(step - schedule.warmup_steps) /
                          static_cast<double>(schedule.step_every));
    case Schedule::Kind::inverse_sqrt:
      return std::sqrt(static_cast<double>(schedule.warmup_steps) / static_cast<double>(step + 1));
    case Schedule::Kind::one_cycle:
      return one_cycle(schedule, step);
  }
  return 1;
}

}  // namespace

void Schedule::check() const {
  const auto refuse = [this](std::string_view expected, std::string_view actual) {
    throw Error(ErrorCategory::input, fmt::format("{} schedule", to_string(kind)), expected,
                actual);
  };
  if (!(peak_rate() >= 0) || !std::isfinite(peak_rate()))
    refuse("expected a learning rate of 0 or more", fmt::format("got {}", peak_rate()));
  if (warmup_steps < 0)
    refuse("expected 0 or more warm-up steps", fmt::format("got {}", warmup_steps));
  if (depends_on_end() && total_steps <= warmup_steps)
    refuse("expected more total steps than warm-up steps",
           fmt::format("got {} total steps and {} warm-up steps", total_steps, warmup_steps));
  if (!(final_fraction >= 0) || !std::isfinite(final_fraction))
    refuse("expected a final learning rate of 0 or more times the peak",
           fmt::format("got {}", final_fraction));
  if (!(step_factor >= 0) || !std::isfinite(step_factor))
    refuse("expected a factor of 0 or more for each decay", fmt::format("got {}", step_factor));
  if ((kind == Kind::step || kind == Kind::exponential) && step_every <= 0)
    refuse("expected a number of steps above 0 between decays", fmt::format("got {}", step_every));
  if (kind == Kind::inverse_sqrt && warmup_steps == 0)
    refuse("expected warm-up steps, on which the decay depends", "got 0");
  if (!(power > 0) || !std::isfinite(power))
    refuse("expected a power above 0", fmt::format("got {}", power));
}

bool Schedule::depends_on_end() const {
  return kind == Kind::cosine || kind == Kind::linear || kind == Kind::polynomial ||
         kind == Kind::one_cycle;
}

float Schedule::rate(std::int64_t step) const {
  check();
  LOCKSTEP_CHECK_OP(step, >=, 0);
  if (step < warmup_steps && kind != Kind::one_cycle)
    return static_cast<float>(static_cast<double>(peak_rate()) * static_cast<double>(step + 1) /
                              static_cast<double>(warmup_steps));
  return static_cast<float>(static_cast<double>(peak_rate()) * fraction(*this, step));
}

std::string to_string(Schedule::Kind kind) {
  return std::string(kNamesOf<Schedule::Kind>.name(kind));
}

}  // namespace lockstep::inline v0::model
