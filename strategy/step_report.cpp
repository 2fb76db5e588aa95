#include "strategy/step_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::strategy {
namespace {

namespace at {
enum Place : std::size_t { loss_high, loss_low, samples, correct, correct_top5, non_finite, terminate, interrupt };
}

std::int64_t count(float value) { return std::llround(value); }

}  // namespace

void StepReport::write(std::span<float> passengers) const {
  std::fill(passengers.begin(), passengers.end(), 0.0F);
  const auto high = static_cast<float>(metrics.loss);
  passengers[at::loss_high] = high;
  passengers[at::loss_low] = static_cast<float>(metrics.loss - static_cast<double>(high));
  passengers[at::samples] = static_cast<float>(metrics.samples);
  passengers[at::correct] = static_cast<float>(metrics.correct);
  passengers[at::correct_top5] = static_cast<float>(metrics.correct_top5);
  passengers[at::non_finite] = static_cast<float>(non_finite);
  passengers[at::terminate] = static_cast<float>(terminate);
  passengers[at::interrupt] = static_cast<float>(interrupt);
}

StepReport StepReport::read(std::span<const float> passengers) {
  StepReport report;
  report.metrics.loss = static_cast<double>(passengers[at::loss_high]) + static_cast<double>(passengers[at::loss_low]);
  report.metrics.samples = count(passengers[at::samples]);
  report.metrics.correct = count(passengers[at::correct]);
  report.metrics.correct_top5 = count(passengers[at::correct_top5]);
  report.non_finite = count(passengers[at::non_finite]);
  report.terminate = count(passengers[at::terminate]);
  report.interrupt = count(passengers[at::interrupt]);
  return report;
}

}  // namespace lockstep::strategy
