#include "lockstep/train/evaluation/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/evaluation/record_account.h"

namespace lockstep::inline v0::train {
namespace {

/// Number of samples in one pass of predict(), which depends only on the data set and the global
/// batch. Matrix products round differently for different numbers of rows. With passes of equal
/// size, the outputs for a record are bitwise the same on any number of replicas.
std::int64_t samples_of_pass(const data::Dataset& dataset) {
  constexpr std::int64_t kPasses = 8;  // per global batch
  constexpr std::int64_t kLeast = 16;
  return std::clamp<std::int64_t>(
      dataset.size(), 1, std::max(kLeast, (dataset.global_batch() + kPasses - 1) / kPasses));
}

/// Appends samples of zeros to the arrays of `part`, up to a multiple of `samples`.
void fill_up(data::Batch& part, std::int64_t samples) {
  const std::int64_t filled = (part.samples + samples - 1) / samples * samples;
  const auto fill = [&](auto& values) {
    values.resize(values.size() / static_cast<std::size_t>(part.samples) *
                  static_cast<std::size_t>(filled));
  };
  for (auto* arrays : {&part.inputs, &part.targets})
    for (data::TensorArray& array : *arrays) fill(array.bytes);
  fill(part.weights);
}

/// The outputs of `replica` for all samples of `part`, in passes of `samples`.
std::vector<std::vector<float>> predict_part(strategy::Replica& replica, data::Batch& part,
                                             std::int64_t samples, std::size_t output_count) {
  std::vector<std::vector<float>> outputs(output_count);
  if (part.samples == 0) return outputs;
  fill_up(part, samples);
  for (std::int64_t begin = 0; begin < part.samples; begin += samples) {
    const auto pass = replica.predict(part, {begin, begin + samples});
    const auto used = static_cast<std::size_t>(std::min(samples, part.samples - begin));
    for (std::size_t k = 0; k < output_count; ++k) {
      const std::size_t width = pass[k].size() / static_cast<std::size_t>(samples);
      const auto values = pass[k].first(used * width);
      outputs[k].insert(outputs[k].end(), values.begin(), values.end());
    }
  }
  return outputs;
}

/// Removes the unreadable records from the parts. Returns them by part.
std::vector<std::vector<data::BadRecord>> remove_bad(std::vector<data::Batch>& parts,
                                                     const data::BatchStream& stream) {
  std::vector<std::vector<data::BadRecord>> bad(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<std::int64_t> ids = parts[i].remove_bad();
    if (ids.empty()) continue;
    for (data::BadRecord& record : stream.bad_records())
      if (std::ranges::find(ids, record.record_id) != ids.end()) bad[i].push_back(record);
  }
  return bad;
}

/// Returns the unreadable records of the pass over `dataset`. Throws the same Error (data) on all
/// ranks if there are more than `dataset` tolerates. Collective.
std::vector<BadFile> bad_files_of(const strategy::Strategy& strategy, const data::Dataset& dataset,
                                  const data::BatchStream& stream) {
  const auto allowed = dataset.bad_records_allowed();
  if (!allowed) return {};
  return gather_bad_records(strategy.ranks(), dataset.source(), stream.bad_records(), *allowed);
}

/// Serializes record ids, outputs and unreadable records of one part: count, ids, each output, the
/// records.
std::vector<std::byte> pack(const data::Batch& part, const std::vector<std::vector<float>>& outputs,
                            const std::vector<data::BadRecord>& bad) {
  const std::int64_t samples = part.samples;
  std::size_t output_bytes = 0;
  for (const std::vector<float>& output : outputs) output_bytes += output.size() * sizeof(float);
  std::vector<std::byte> bytes(sizeof(samples) + part.record_ids.size() * sizeof(std::int64_t) +
                               output_bytes);
  std::byte* place = bytes.data();
  const auto put = [&](const void* data, std::size_t size) {
    if (size > 0) std::memcpy(place, data, size);
    place += size;
  };
  put(&samples, sizeof(samples));
  put(part.record_ids.data(), part.record_ids.size() * sizeof(std::int64_t));
  for (const std::vector<float>& output : outputs)
    put(output.data(), output.size() * sizeof(float));
  pack_bad_records(bad, bytes);
  return bytes;
}

/// The values of one output of a global batch.
struct Gathered {
  std::int64_t width = 0;
  std::vector<float> values = {};
};

void append_unpacked(std::span<const std::byte> bytes, std::vector<std::int64_t>& ids,
                     std::vector<Gathered>& outputs, std::map<std::int64_t, std::string>& bad) {
  std::int64_t samples = 0;
  LOCKSTEP_CHECK_OP(bytes.size(), >=, sizeof(samples));
  std::memcpy(&samples, bytes.data(), sizeof(samples));
  if (samples == 0) return unpack_bad_records(bytes.subspan(sizeof(samples)), bad);
  const std::size_t id_bytes = static_cast<std::size_t>(samples) * sizeof(std::int64_t);
  std::span<const std::byte> rest = bytes.subspan(sizeof(samples) + id_bytes);
  ids.resize(ids.size() + static_cast<std::size_t>(samples));
  std::memcpy(&*(ids.end() - samples), bytes.data() + sizeof(samples), id_bytes);
  for (auto& [width, values] : outputs) {
    const auto floats = static_cast<std::size_t>(samples * width);
    values.resize(values.size() + floats);
    std::memcpy(&*(values.end() - static_cast<std::ptrdiff_t>(floats)), rest.data(),
                floats * sizeof(float));
    rest = rest.subspan(floats * sizeof(float));
  }
  unpack_bad_records(rest, bad);
}

}  // namespace

int reading_threads(int requested, const strategy::Strategy& strategy) {
  // Per replica: an H100 that trained ResNet-50 on JPEG images needed 11.
  constexpr int kMaxThreads = 16;
  if (requested != 0) return requested;
  if (!strategy.has_gpu()) return 1;
  const std::vector<job::Placement>& all = strategy.placements();
  const job::Placement& mine = all[static_cast<std::size_t>(strategy.first_replica())];
  std::set<int> ranks;
  for (const job::Placement& one : all)
    if (one.host == mine.host && one.processor_list == mine.processor_list) ranks.insert(one.rank);
  return std::clamp(mine.processors / static_cast<int>(ranks.size()), 1,
                    kMaxThreads * static_cast<int>(strategy.local_replicas()));
}

data::StreamOptions one_pass(const strategy::Strategy& strategy, const data::Dataset& dataset,
                             const ReadOptions& options) {
  return {.first_step = 0,
          .last_step = dataset.steps_per_epoch(),
          .replicas = strategy.num_replicas_in_sync(),
          .first_replica = strategy.first_replica(),
          .local_replicas = strategy.local_replicas(),
          .prefetch = options.prefetch,
          .threads = reading_threads(options.data_threads, strategy),
          .pixels = strategy.has_gpu(),
          .marks_bad = dataset.bad_records_allowed().has_value(),
          .names_remedy = true};
}

std::optional<Evaluation> evaluate(strategy::LocalReplicas& replicas, const data::Dataset& dataset,
                                   const data::StreamOptions& options,
                                   const Interrupted& interrupted, std::int32_t* highest_label) {
  const auto stream = dataset.stream(options);
  std::vector<data::Batch> parts;
  std::vector<model::MetricSums> sums(replicas.strategy().local_replicas());
  std::vector<model::MetricTotals> totals(sums.size());
  std::vector<std::int32_t> highest(sums.size(), -1);
  const std::function<void(int)> body = [&](int local) {
    const allreduce::PhaseScope evaluating(&replicas.strategy().activity(local),
                                           allreduce::Phase::evaluating);
    const auto i = static_cast<std::size_t>(local);
    parts[i].remove_bad();
    sums[i] += replicas[local].evaluate(parts[i], totals[i]);
    for (const std::int32_t label : parts[i].labels()) highest[i] = std::max(highest[i], label);
  };
  std::optional<Evaluation> all;
  replicas.strategy().fail_together([&] {
    for (int batch = 1; stream->next(parts); ++batch) {
      replicas.strategy().run(body);
      if (interrupted && batch % kInterruptEvery == 0 && interrupted()) return;
    }
    all.emplace();
    replicas.run([&](strategy::Replica& replica, int local) {
      const model::MetricSums reduced = strategy::reduce_metrics(replica.group(), sums[local]);
      std::int32_t& label = highest[static_cast<std::size_t>(local)];
      replica.group().all_reduce(std::span(&label, 1), allreduce::ReduceOp::max).wait();
      const model::MetricTotals metrics =
          strategy::reduce_totals(replica.group(), replicas.metrics(), totals[local]);
      if (local != 0) return;
      static_cast<model::MetricSums&>(*all) = reduced;
      all->values = model::values_of(replicas.metrics(), metrics);
    });
    all->classes = replicas.classes();
    all->bad_files = bad_files_of(replicas.strategy(), dataset, *stream);
    if (highest_label != nullptr) *highest_label = highest.front();
  });
  return all;
}

std::vector<BadFile> predict(strategy::LocalReplicas& replicas, const data::Dataset& dataset,
                             const data::StreamOptions& options, const PredictionSink& sink) {
  const auto stream = dataset.stream(options);
  const model::Network& network = replicas.network();
  std::vector<Gathered> outputs;
  for (const model::NetworkOutput& output : network.outputs())
    outputs.push_back({.width = model::element_count(network.shape(output.node))});
  const std::int64_t samples = samples_of_pass(dataset);
  const bool is_chief = replicas.strategy().is_chief();
  std::vector<data::Batch> parts;
  std::vector<std::vector<data::BadRecord>> bad_of_parts;
  std::vector<std::int64_t> ids;
  std::map<std::int64_t, std::string> bad_by_id;
  std::vector<OutputValues> all;
  std::vector<data::BadRecord> bad;
  std::vector<BadFile> bad_files;
  const std::function<void(int)> body = [&](int local) {
    data::Batch& part = parts[static_cast<std::size_t>(local)];
    strategy::Replica& replica = replicas[local];
    const auto parts_of_all = replica.group().all_gather(
        pack(part, predict_part(replica, part, samples, network.outputs().size()),
             bad_of_parts[static_cast<std::size_t>(local)]));
    if (local != 0 || !is_chief) return;
    for (const auto& bytes : parts_of_all) append_unpacked(bytes, ids, outputs, bad_by_id);
  };
  replicas.strategy().fail_together([&] {
    while (stream->next(parts)) {
      ids.clear();
      bad_by_id.clear();
      bad_of_parts = remove_bad(parts, *stream);
      for (Gathered& output : outputs) output.values.clear();
      replicas.strategy().run(body);
      if (!is_chief) continue;
      all.clear();
      for (std::size_t k = 0; k < outputs.size(); ++k)
        all.push_back({network.outputs()[k].name, outputs[k].values, outputs[k].width});
      bad.clear();
      for (const auto& [id, problem] : bad_by_id) bad.push_back({id, problem});
      sink({ids, all.front().values, all.front().width, all, bad});
    }
    bad_files = bad_files_of(replicas.strategy(), dataset, *stream);
  });
  return bad_files;
}

}  // namespace lockstep::inline v0::train
