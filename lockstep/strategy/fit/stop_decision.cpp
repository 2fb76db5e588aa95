#include "lockstep/strategy/fit/stop_decision.h"

#include <algorithm>
#include <cstdint>

namespace lockstep::strategy {

void StopDecision::begin() {
  callbacks_may_stop_steps_ = strategy_.ranks().any(std::ranges::any_of(
      fit_.callbacks, [](const auto& callback) { return callback->may_stop_at_batches(); }));
}

void StopDecision::agree_on_callbacks() {
  by_callback_ = strategy_.ranks().any(std::ranges::any_of(
      fit_.callbacks, [](const auto& callback) { return callback->stop_requested(); }));
}

int StopDecision::agreed_signal() const {
  std::int32_t signal = signals_.received();
  strategy_.ranks().all_reduce(std::span(&signal, 1), allreduce::ReduceOp::max).wait();
  return signal;
}

}  // namespace lockstep::strategy
