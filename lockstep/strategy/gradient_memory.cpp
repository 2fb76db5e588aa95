#include "lockstep/strategy/gradient_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/base/error.h"

namespace lockstep::strategy {
namespace {

using model::SummableMetrics;

namespace at {
enum Place : std::size_t { terminate = SummableMetrics::kSize, interrupt, hangup };
}

std::int64_t count(float value) { return std::llround(value); }

}  // namespace

// A separate counter for each signal, because ranks may have received different ones.
void StepReport::add_signal(int signal) {
  if (signal == SIGTERM) ++terminate;
  if (signal == SIGINT) ++interrupt;
  if (signal == SIGHUP) ++hangup;
}

void StepReport::write_signals(std::span<float> step_scalars) const {
  step_scalars[at::terminate] = static_cast<float>(terminate);
  step_scalars[at::interrupt] = static_cast<float>(interrupt);
  step_scalars[at::hangup] = static_cast<float>(hangup);
}

StepReport StepReport::read(std::span<const float> step_scalars) {
  const SummableMetrics summed(step_scalars.first<SummableMetrics::kSize>());
  StepReport report;
  report.metrics = summed.sums();
  report.non_finite = count(summed.non_finite);
  report.is_finite = SummableMetrics::is_finite(step_scalars.data());
  report.terminate = count(step_scalars[at::terminate]);
  report.interrupt = count(step_scalars[at::interrupt]);
  report.hangup = count(step_scalars[at::hangup]);
  return report;
}

namespace {

constexpr std::size_t kAlignment = 64;  // bytes; what a Buffer promises

}  // namespace

device::Buffer GradientMemory::allocate(std::size_t bytes) {
  LOCKSTEP_CHECK_OP(memory_.size(), ==, std::size_t{0});
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t together = padded + step_scalar_count() * sizeof(float);
  memory_ = group_.allocate(together);
  LOCKSTEP_CHECK_OP(memory_.size(), ==, together);
  return {memory_.data(), bytes, memory_.device(), [](void*) {}};
}

}  // namespace lockstep::strategy
