#include "lockstep/train/callbacks/step_interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "lockstep/strategy/replica/local_replicas.h"

namespace lockstep::inline v0::train {

double queued_share() {
  double computed = 0;
  double queued = 0;
  std::error_code ended;
  std::filesystem::directory_iterator thread("/proc/self/task", ended);
  for (; !ended && thread != std::filesystem::directory_iterator(); thread.increment(ended)) {
    std::ifstream file(thread->path() / "schedstat");  // nanoseconds
    double thread_computed = 0;
    double waited = 0;
    if (!(file >> thread_computed >> waited)) continue;
    computed += thread_computed;
    queued += waited;
  }
  return queued > 0 ? queued / (computed + queued) : 0;
}

strategy::TrainingFacts facts_of(const TrainBegin& begin) {
  strategy::TrainingFacts facts{
      .world_size = begin.world_size,
      .per_replica_batch = std::max<std::int64_t>(1, begin.per_replica_batch),
      .gradient_bytes = begin.gradient_bytes,
      .has_narrow_gradients = begin.has_narrow_gradients};
  const bool one_a_rank = begin.world_size == begin.ranks;
  for (const job::Placement& place : begin.placements) {
    facts.names.push_back(one_a_rank ? fmt::format("rank {}", place.rank)
                                     : fmt::format("replica {}", place.replica));
    if (place.rank != 0) continue;
    facts.processors = place.processors;
  }
  if (const double quota = processor_quota(); quota > 0)
    facts.processors = std::min(facts.processors, quota);
  if (begin.replicas != nullptr)
    facts.has_optimizer_state = !(*begin.replicas)[0].optimizer().slot_names().empty();
  return facts;
}

void StepInterval::begin(const TrainBegin& begin) {
  facts_ = facts_of(begin);
  first_step_ = begin.first_step + 1;
  restart();
}

void StepInterval::add(const StepLogs& logs) {
  if (logs.step == first_step_) {
    data_processor_now_ = logs.data_processor_seconds;
    return restart();
  }
  ++sums_.steps;
  sums_.seconds += logs.breakdown;
  sums_.data_workers = logs.data_workers;
  sums_.data_processor_seconds = logs.data_processor_seconds - data_processor_before_;
  data_processor_now_ = logs.data_processor_seconds;
  sums_.busy.resize(logs.busy.size());
  for (std::size_t i = 0; i < logs.busy.size(); ++i) sums_.busy[i] += logs.busy[i];
}

strategy::StepBreakdown StepInterval::mean() const {
  return sums_.steps == 0 ? strategy::StepBreakdown{}
                          : sums_.seconds / static_cast<double>(sums_.steps);
}

std::optional<strategy::Verdict> StepInterval::verdict() const {
  strategy::StepSums sums = sums_;
  // Reading this takes time, and only a training that waits for input needs it.
  const double total = sums.seconds.total();
  if (total >= strategy::VerdictLimits::kLeastSeconds &&
      sums.seconds.input >= strategy::VerdictLimits::kShare * total)
    sums.queued_share = queued_share();
  return judge(sums, facts_);
}

// Reuses the memory of the list.
void StepInterval::restart() {
  std::vector<allreduce::BusySeconds> busy = std::move(sums_.busy);
  busy.clear();
  sums_ = {};
  sums_.busy = std::move(busy);
  data_processor_before_ = data_processor_now_;
}

}  // namespace lockstep::inline v0::train
