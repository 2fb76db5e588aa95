#include "lockstep/strategy/fit/stop_decision.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace lockstep::strategy {
namespace {

/// What the chief answers to Ctrl-C; empty if the session is quiet, and on the other ranks.
std::string interrupt_notice(const job::Session& session, const FitOptions& fit) {
  if (!session.is_chief() || !session.logger()->should_log(spdlog::level::info)) return {};
  return fmt::format("lockstep: SIGINT: finishing the step{}; Ctrl-C again stops at once",
                     fit.checkpoint.directory.empty() ? "" : ", then saving");
}

}  // namespace

StopDecision::StopDecision(const Strategy& strategy, const FitOptions& fit)
    : strategy_(strategy),
      fit_(fit),
      signals_(fit.signals, interrupt_notice(strategy.session(), fit)) {}

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
