#include "lockstep/train/callbacks/stragglers.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::train {
namespace {

std::vector<std::string> names_of_replicas(const strategy::Strategy& strategy) {
  const bool one_a_rank = strategy.num_replicas_in_sync() == strategy.session().size();
  std::vector<std::string> names;
  for (const job::Placement& place : strategy.placements())
    names.push_back(one_a_rank ? fmt::format("rank {} (host {})", place.rank, place.host)
                               : fmt::format("replica {} (rank {}, host {})", place.replica,
                                             place.rank, place.host));
  return names;
}

}  // namespace

Stragglers::Stragglers(const strategy::Strategy& strategy, std::int64_t steps)
    : logger_(strategy.session().logger()),
      names_(names_of_replicas(strategy)),
      steps_(steps),
      report_(names_.size()) {
  LOCKSTEP_CHECK_OP(steps, >, 0);
}

std::int64_t Stragglers::interval(std::int64_t log_every) {
  return std::max<std::int64_t>(100, log_every);
}

void Stragglers::on_batch_end(const StepLogs& logs) {
  // The first step of a run is excluded: it includes creating plans and allocating memory.
  if (logs.step != first_step_) report_.add(logs.busy);
  // In the few steps after a resume, occasional delays look like slow replicas.
  const auto added = static_cast<std::int64_t>(report_.steps());
  if (logs.step % steps_ != 0 || added + 1 < steps_) return;
  for (const std::string& sentence : allreduce::to_sentences(report_.stragglers(), names_))
    logger_->warn(fmt::format("step {}: {}", logs.step, sentence));
  report_.restart();
}

}  // namespace lockstep::inline v0::train
