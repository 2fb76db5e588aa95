#include "lockstep/train/step/stop_decision.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::inline v0::train {
namespace {

/// Returns the chief's message on Ctrl-C; empty if the session is quiet, and on other ranks.
std::string interrupt_notice(const job::Session& session, const FitOptions& fit) {
  if (!session.is_chief() || !session.logger()->should_log(spdlog::level::info)) return {};
  return fmt::format("lockstep: SIGINT: finishing the step{}; Ctrl-C again stops at once",
                     fit.checkpoint.directory.empty() ? "" : ", then saving");
}

}  // namespace

StopDecision::StopDecision(const strategy::Strategy& strategy, const FitOptions& fit)
    : strategy_(strategy),
      fit_(fit),
      signals_(fit.signals, interrupt_notice(strategy.session(), fit)) {
  for (const auto& callback : fit.callbacks) {  // requests of an earlier training
    callback->stop_requested_ = callback->save_requested_ = false;
    callback->stop_reason_.clear();
  }
}

void StopDecision::begin() {
  callbacks_may_stop_steps_ = strategy_.ranks().any(std::ranges::any_of(
      fit_.callbacks, [](const auto& callback) { return callback->may_stop_at_batches(); }));
}

void StopDecision::agree_on_callbacks() {
  std::array<std::int32_t, 2> requests = {};  // to stop, to save
  for (const auto& callback : fit_.callbacks) {
    if (callback->stop_requested_) requests[0] = 1;
    if (std::exchange(callback->save_requested_, false)) requests[1] = 1;
  }
  strategy_.ranks().all_reduce(std::span<std::int32_t>(requests), allreduce::ReduceOp::max).wait();
  by_callback_ = requests[0] != 0;
  saves_ = saves_ || requests[1] != 0;
}

std::string StopDecision::reason() const {
  const auto found = std::ranges::find_if(
      fit_.callbacks, [](const auto& callback) { return callback->stop_requested(); });
  return by_callback_ && found != fit_.callbacks.end() ? (*found)->stop_reason() : "";
}

int StopDecision::agreed_signal() const {
  std::int32_t signal = signals_.received();
  strategy_.ranks().all_reduce(std::span(&signal, 1), allreduce::ReduceOp::max).wait();
  return signal;
}

}  // namespace lockstep::inline v0::train
