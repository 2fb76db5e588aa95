#include "strategy/step_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace lockstep::strategy {
namespace {

enum Place : std::size_t { kLossHigh, kLossLow, kSamples, kCorrect, kCorrectTop5, kNonFinite, kTerminate, kInterrupt };

std::int64_t count(float value) { return std::llround(value); }

}  // namespace

void StepReport::write(std::span<float> passengers) const {
  std::fill(passengers.begin(), passengers.end(), 0.0F);
  const auto high = static_cast<float>(metrics.loss);
  passengers[kLossHigh] = high;
  passengers[kLossLow] = static_cast<float>(metrics.loss - static_cast<double>(high));
  passengers[kSamples] = static_cast<float>(metrics.samples);
  passengers[kCorrect] = static_cast<float>(metrics.correct);
  passengers[kCorrectTop5] = static_cast<float>(metrics.correct_top5);
  passengers[kNonFinite] = static_cast<float>(non_finite);
  passengers[kTerminate] = static_cast<float>(terminate);
  passengers[kInterrupt] = static_cast<float>(interrupt);
}

StepReport StepReport::read(std::span<const float> passengers) {
  StepReport report;
  report.metrics.loss = static_cast<double>(passengers[kLossHigh]) + static_cast<double>(passengers[kLossLow]);
  report.metrics.samples = count(passengers[kSamples]);
  report.metrics.correct = count(passengers[kCorrect]);
  report.metrics.correct_top5 = count(passengers[kCorrectTop5]);
  report.non_finite = count(passengers[kNonFinite]);
  report.terminate = count(passengers[kTerminate]);
  report.interrupt = count(passengers[kInterrupt]);
  return report;
}

}  // namespace lockstep::strategy
