#include "strategy/local_replicas.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/error.h"
#include "model/backend.h"
#include "strategy/replica_agreement.h"

namespace lockstep::strategy {
LocalReplicas::LocalReplicas(Strategy& strategy, std::shared_ptr<const model::Network> network,
                             const ReplicaOptions& options)
    : strategy_(strategy),
      network_(std::move(network)),
      has_accuracy_(std::holds_alternative<model::SparseCategoricalCrossentropy>(options.loss)),
      replicas_(static_cast<std::size_t>(strategy.local_replicas())) {
  static_cast<void>(options.normalization.members(strategy_.num_replicas_in_sync()));  // before any thread fails
  // Each on its own thread, so that its memory is near the cores that use it.
  strategy_.run([&](int local) {
    auto replica = std::make_unique<Replica>(network_, strategy_.device(local), strategy_.group(local), options);
    replica->check_layout();
    replicas_[static_cast<std::size_t>(local)] = std::move(replica);
  });
}

LocalReplicas::~LocalReplicas() = default;

void LocalReplicas::run(const std::function<void(Replica&, int)>& body) {
  strategy_.run([&](int local) { body((*this)[local], local); });
}

void LocalReplicas::initialize(std::uint64_t seed) {
  run([&](Replica& replica, int) { replica.model().initialize(seed); });
}

void LocalReplicas::spread() {
  run([&](Replica& replica, int local) {
    std::vector<std::span<float>> targets = {replica.model().parameters(), replica.model().buffers()};
    for (const std::string& slot : replica.optimizer().slot_names()) targets.push_back(replica.optimizer().slot(slot));
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (local == 0) {
        views_[i].write_back(replica.model().backend().stream());
        continue;
      }
      device::HostView view = replica.host_view(targets[i]);
      std::ranges::copy(views_[i].values(), view.values().begin());
      view.write_back(replica.model().backend().stream());
    }
    replica.model().parameters_changed();
  });
}

void LocalReplicas::check_agreement(std::int64_t step) {
  run([&](Replica& replica, int) {
    const std::optional<Disagreement> found = find_disagreement(replica);
    if (!found) return;
    std::string who;
    for (const int odd : found->odd) {
      const Placement& place = strategy_.placements()[static_cast<std::size_t>(odd)];
      who += fmt::format("{}{} (rank {}, host {})", who.empty() ? "" : ", ", odd, place.rank, place.host);
    }
    throw Error(ErrorCategory::communication, "replicas",
                fmt::format("needed the same numbers on all replicas after step {}", step),
                fmt::format("{} is another on replica {}{}", found->tensor, who,
                            agreed_step_ < 0 ? "" : fmt::format(", since a step after {}", agreed_step_)));
  });
  agreed_step_ = step;
}

ReplicaArrays LocalReplicas::arrays(bool with_slots) {
  Replica& replica = *replicas_.front();
  views_.clear();
  const auto view = [&](std::span<float> values) { return views_.emplace_back(replica.host_view(values)).values(); };
  ReplicaArrays arrays{.parameter_table = &replica.model().parameter_table(),
                       .parameters = view(replica.model().parameters()),
                       .buffer_table = &replica.model().buffer_table(),
                       .buffers = view(replica.model().buffers()),
                       .slots = {}};
  if (with_slots)
    for (const std::string& name : replica.optimizer().slot_names())
      arrays.slots.push_back({name, view(replica.optimizer().slot(name))});
  return arrays;
}

model::MetricSums LocalReplicas::take_metrics() {
  model::MetricSums sums;
  run([&](Replica& replica, int local) {
    const model::MetricSums all = reduce_metrics(replica.group(), replica.take_metrics());
    if (local == 0) sums = all;
  });
  sums.has_accuracy = has_accuracy_;
  return sums;
}

}  // namespace lockstep::strategy
