#include "lockstep/strategy/step_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::strategy {
namespace {

using model::SummableMetrics;

namespace at {
enum Place : std::size_t { terminate = SummableMetrics::kSize, interrupt, hangup };
}

std::int64_t count(float value) { return std::llround(value); }

}  // namespace

// A number of its own for each: ranks may have received different ones.
void StepReport::add_signal(int signal) {
  if (signal == SIGTERM) ++terminate;
  if (signal == SIGINT) ++interrupt;
  if (signal == SIGHUP) ++hangup;
}

void StepReport::write_signals(std::span<float> passengers) const {
  passengers[at::terminate] = static_cast<float>(terminate);
  passengers[at::interrupt] = static_cast<float>(interrupt);
  passengers[at::hangup] = static_cast<float>(hangup);
}

StepReport StepReport::read(std::span<const float> passengers) {
  const SummableMetrics summed(passengers.first<SummableMetrics::kSize>());
  StepReport report;
  report.metrics = summed.sums();
  report.non_finite = count(summed.non_finite);
  report.is_finite = SummableMetrics::is_finite(passengers.data());
  report.terminate = count(passengers[at::terminate]);
  report.interrupt = count(passengers[at::interrupt]);
  report.hangup = count(passengers[at::hangup]);
  return report;
}

}  // namespace lockstep::strategy
