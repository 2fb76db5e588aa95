#include "lockstep/strategy/replica/local_replicas.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/bound_fields.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/strategy/replica/replica.h"

namespace lockstep::inline v0::strategy {
namespace {

using Hashes = std::vector<std::uint64_t>;

struct FlatArray {
  std::string prefix;  // prefix of the tensor names
  device::HostView view;
};

std::vector<FlatArray> flat_arrays(Replica& replica) {
  std::vector<FlatArray> arrays;
  arrays.push_back({"", replica.host_view(replica.model().parameters())});
  for (const std::string& slot : replica.optimizer().slot_names())
    arrays.push_back(
        {fmt::format("{} of ", slot), replica.host_view(replica.optimizer().slot(slot))});
  return arrays;
}

std::uint64_t hash_tensor(device::HostView& view, const model::ParameterInfo& entry) {
  return XXH3_64bits(view.values().data() + entry.offset, entry.count * sizeof(float));
}

std::int64_t output_width(const model::Network& network, const model::LossTerm& term) {
  return model::row_width(term.loss, network.shape(network.outputs()[term.output].node));
}

// One hash per tensor: the arrays of each parameter (frozen parameters have only the first), then
// the moving statistics.
Hashes hash_tensors(Replica& replica) {
  std::vector<FlatArray> arrays = flat_arrays(replica);
  Hashes hashes;
  for (const model::ParameterInfo& entry : replica.model().parameter_table().entries())
    for (FlatArray& array : std::span(arrays).first(entry.trained ? arrays.size() : 1))
      hashes.push_back(hash_tensor(array.view, entry));
  if (!replica.statistics_agree()) return hashes;
  device::HostView buffers = replica.host_view(replica.model().buffers());
  for (const model::ParameterInfo& entry : replica.model().buffer_table().entries())
    hashes.push_back(hash_tensor(buffers, entry));
  return hashes;
}

std::string name_of_tensor(Replica& replica, std::size_t index) {
  const std::vector<FlatArray> arrays = flat_arrays(replica);
  const auto& entries = replica.model().parameter_table().entries();
  const std::size_t trained = replica.model().trained_table().entries().size();
  if (index < trained * arrays.size())
    return arrays[index % arrays.size()].prefix + entries[index / arrays.size()].name;
  index -= trained * arrays.size();
  if (trained + index < entries.size()) return entries[trained + index].name;
  return replica.model().buffer_table().entries()[trained + index - entries.size()].name;
}

// The values of all replicas, in replica order.
std::vector<Hashes> gather(const allreduce::Communicator& group,
                           std::span<const std::uint64_t> mine) {
  std::vector<Hashes> all;
  for (const auto& bytes : group.all_gather(std::as_bytes(mine))) {
    LOCKSTEP_CHECK_OP(bytes.size(), ==, mine.size_bytes());
    Hashes& theirs = all.emplace_back(mine.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return all;
}

std::vector<int> mismatching_ranks(const std::vector<Hashes>& all, std::size_t tensor) {
  const auto votes = [&](std::uint64_t value) {
    return std::ranges::count_if(all,
                                 [&](const Hashes& hashes) { return hashes[tensor] == value; });
  };
  // If several values are equally frequent, use that of the lowest replica.
  std::uint64_t majority = all.front()[tensor];
  for (const Hashes& hashes : all)
    if (votes(hashes[tensor]) > votes(majority)) majority = hashes[tensor];
  std::vector<int> differing_ranks;
  for (std::size_t replica = 0; replica < all.size(); ++replica)
    if (all[replica][tensor] != majority) differing_ranks.push_back(static_cast<int>(replica));
  return differing_ranks;
}

}  // namespace

std::optional<Disagreement> find_disagreement(Replica& replica) {
  const Hashes mine = hash_tensors(replica);
  const std::uint64_t together = XXH3_64bits(mine.data(), mine.size() * sizeof(std::uint64_t));
  const std::vector<Hashes> totals = gather(replica.group(), std::span(&together, 1));
  if (std::ranges::all_of(totals, [&](const Hashes& total) { return total == totals.front(); }))
    return std::nullopt;
  // Gathers in pieces: the hashes of many tensors of many replicas may exceed a message or the
  // memory.
  constexpr std::size_t kTensorsAtOnce = 1024;
  for (std::size_t begin = 0; begin < mine.size(); begin += kTensorsAtOnce) {
    const auto piece =
        std::span(mine).subspan(begin, std::min(kTensorsAtOnce, mine.size() - begin));
    const std::vector<Hashes> all = gather(replica.group(), piece);
    for (std::size_t tensor = 0; tensor < piece.size(); ++tensor)
      if (std::vector<int> differing_ranks = mismatching_ranks(all, tensor);
          !differing_ranks.empty())
        return Disagreement{name_of_tensor(replica, begin + tensor), std::move(differing_ranks)};
  }
  LOCKSTEP_CHECK(false && "replicas of different hashes hold the same tensors");
  return std::nullopt;
}

namespace {

void check(const TrainerOptions& options) {
  check_fields("trainer", fields_of(options));
  if (!(options.ema >= 0 && options.ema < 1))
    throw Error(ErrorCategory::input, "ema", "expected a decay from 0 to below 1",
                fmt::format("got {}", options.ema));
  model::check_options(options.optimizer);
}

}  // namespace

LocalReplicas::LocalReplicas(Strategy& strategy, std::shared_ptr<const model::Network> network,
                             const TrainerOptions& given)
    : strategy_(strategy),
      network_(std::move(network)),
      plan_(loss_plan(given, *network_)),
      classes_(model::class_count(loss()[0].loss, output_width(*network_, loss()[0]))),
      replicas_(static_cast<std::size_t>(strategy.local_replicas())) {
  // Everything that may throw is done before threads start.
  const TrainerOptions options = strategy.adapted(given);
  check(options);
  static_cast<void>(options.normalization.members(strategy_.num_replicas_in_sync()));
  if (strategy_.has_gpu()) model::check_runs_on_gpu(options.optimizer);
  for (const model::LossTerm& term : loss().terms()) {
    model::check_options(term.loss);
    if (strategy_.has_gpu()) model::check_runs_on_gpu(term.loss);
  }
  if (!options.class_weights.empty() && loss().terms().size() > 1)
    throw Error(ErrorCategory::input, "class-weights", "expected a single loss with class weights",
                fmt::format("got {} losses; weigh the samples instead (SampleSpec::weighted)",
                            loss().terms().size()));
  model::check_class_weights(loss()[0].loss, output_width(*network_, loss()[0]),
                             options.class_weights);
  // Each replica is created on its own thread, so that its memory is near the cores that use it.
  strategy_.run([&](int local) {
    auto replica = std::make_unique<Replica>(network_, strategy_.device(local),
                                             strategy_.group(local), options, plan_);
    replica->check_layout();
    replicas_[local] = std::move(replica);
  });
}

LocalReplicas::~LocalReplicas() = default;

void LocalReplicas::run(const std::function<void(Replica&, int)>& body) {
  strategy_.run([&](int local) { body((*this)[local], local); });
}

void LocalReplicas::initialize(std::uint64_t seed) {
  run([&](Replica& replica, int) {
    replica.model().initialize(seed);
    replica.reset_average();
  });
}

void LocalReplicas::broadcast_parameters() {
  run([&](Replica& replica, int local) {
    std::vector<std::span<float>> targets = {replica.model().parameters(),
                                             replica.model().buffers()};
    for (const std::string& slot : replica.optimizer().slot_names())
      targets.push_back(replica.optimizer().slot(slot));
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
    constexpr std::size_t kWithoutSlots = 2;
    if (views_.size() == kWithoutSlots) replica.reset_average();
  });
}

void LocalReplicas::check_agreement(std::int64_t step) {
  run([&](Replica& replica, int) {
    const std::optional<Disagreement> found = find_disagreement(replica);
    if (!found) return;
    std::string who;
    for (const int rank : found->differing_ranks) {
      const job::Placement& place = strategy_.placements()[rank];
      who += fmt::format("{}{} (rank {}, host {})", who.empty() ? "" : ", ", rank, place.rank,
                         place.host);
    }
    throw Error(
        ErrorCategory::communication, "replicas",
        fmt::format("expected the same values on all replicas after step {}", step),
        fmt::format("{} differs on replica {}{}", found->tensor, who,
                    agreed_step_ < 0 ? "" : fmt::format(", since a step after {}", agreed_step_)));
  });
  agreed_step_ = step;
}

checkpoint::ReplicaArrays LocalReplicas::arrays(bool with_slots) {
  Replica& replica = *replicas_.front();
  views_.clear();
  const auto view = [&](std::span<float> values) {
    return views_.emplace_back(replica.host_view(values)).values();
  };
  checkpoint::ReplicaArrays arrays{.parameter_table = &replica.model().parameter_table(),
                                   .parameters = view(replica.model().parameters()),
                                   .buffer_table = &replica.model().buffer_table(),
                                   .buffers = view(replica.model().buffers()),
                                   .slots = {},
                                   .slot_table = &replica.model().trained_table()};
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
  sums.classes = classes_;
  return sums;
}

model::MetricTotals LocalReplicas::take_metric_totals() {
  model::MetricTotals totals;
  if (metrics().empty()) return totals;
  run([&](Replica& replica, int local) {
    model::MetricTotals all =
        reduce_totals(replica.group(), metrics(), replica.take_metric_totals());
    if (local == 0) totals = std::move(all);
  });
  return totals;
}

}  // namespace lockstep::inline v0::strategy
