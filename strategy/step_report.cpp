#include "strategy/step_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::strategy {
namespace {

using model::SummableMetrics;

namespace at {
enum Place : std::size_t { terminate = SummableMetrics::kSize, interrupt };
}

std::int64_t count(float value) { return std::llround(value); }

}  // namespace

void StepReport::write_signals(std::span<float> passengers) const {
  passengers[at::terminate] = static_cast<float>(terminate);
  passengers[at::interrupt] = static_cast<float>(interrupt);
}

StepReport StepReport::read(std::span<const float> passengers) {
  const SummableMetrics summed(passengers.first<SummableMetrics::kSize>());
  StepReport report;
  report.metrics = summed.sums();
  report.non_finite = count(summed.non_finite);
  report.is_finite = SummableMetrics::is_finite(passengers.data());
  report.terminate = count(passengers[at::terminate]);
  report.interrupt = count(passengers[at::interrupt]);
  return report;
}

}  // namespace lockstep::strategy
