#include "lockstep/data/pipeline/batch_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lockstep/data/pipeline/mixup.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/record_source.h"

namespace lockstep::inline v0::data {

BatchReader::BatchReader(Pipeline pipeline, const StreamOptions& options)
    : pipeline_(std::move(pipeline)),
      options_(options),
      sharding_(pipeline_, options.layout()),
      steps_per_epoch_(sharding_.plan().steps_per_epoch()),
      delivers_pixels_(options.pixels && pipeline_.keeps_pixels()),
      needs_padding_(std::ranges::any_of(pipeline_.spec.inputs, &TensorSpec::is_ragged) ||
                     std::ranges::any_of(pipeline_.spec.targets, &TensorSpec::is_ragged)) {}

void BatchReader::resize_parts(std::int64_t step, std::vector<Batch>& parts) const {
  parts.resize(options_.local_replicas);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Batch& part = parts[i];
    const BatchShare share = sharding_.plan().share(step % steps_per_epoch_,
                                                    options_.first_replica + static_cast<int>(i));
    part.step = step;
    part.epoch = step / steps_per_epoch_;
    part.first_sample = share.first_sample;
    part.global_samples = share.global_samples;
    part.micro_batches = std::clamp<std::int64_t>(options_.micro_batches, 1,
                                                  std::max<std::int64_t>(1, share.global_samples));
    part.resize(pipeline_.spec, share.positions.size(), delivers_pixels_);
    const auto samples = static_cast<std::size_t>(part.samples);
    part.record_ids.resize(samples);
    part.normalization =
        delivers_pixels_ ? pipeline_.pixel_normalization() : ChannelNormalization();
    const std::size_t mixed = pipeline_.mixup_alpha > 0 ? samples : 0;
    part.partner_labels.resize(mixed);
    part.label_weights.resize(mixed);
  }
}

std::int64_t BatchReader::step_bytes() const {
  const SampleSpec& spec = pipeline_.spec;
  const std::int64_t batch = std::min(pipeline_.global_batch, pipeline_.source->size());
  const std::int64_t samples =
      split(batch, options_.replicas, options_.first_replica + options_.local_replicas - 1).end -
      split(batch, options_.replicas, options_.first_replica).begin;
  std::size_t bytes = sizeof(std::int64_t);  // the record id
  for (const TensorSpec& input : spec.inputs) bytes += input.bytes();
  for (const TensorSpec& target : spec.targets) bytes += target.bytes();
  if (delivers_pixels_)
    bytes -= spec.inputs.front().bytes() - static_cast<std::size_t>(spec.feature_count());
  if (spec.weighted) bytes += sizeof(float);
  if (pipeline_.mixup_alpha > 0) bytes += sizeof(std::int32_t) + sizeof(float);
  return samples * static_cast<std::int64_t>(bytes);
}

std::int64_t BatchReader::local_samples(const std::vector<Batch>& parts) {
  std::int64_t samples = 0;
  for (const Batch& part : parts) samples += part.samples;
  return samples;
}

void BatchReader::fill(Range piece, std::vector<Batch>& parts, BadRecordProblems& bad,
                       const std::stop_token& stop) const {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Batch& part = parts[i];
    const Range samples = {std::max(piece.begin - before, std::int64_t{0}),
                           std::min(piece.end - before, part.samples)};
    if (samples.begin < samples.end)
      fill_part(options_.first_replica + static_cast<int>(i), samples, part, bad, stop);
    before += part.samples;
  }
}

void BatchReader::fill_part(int replica, Range samples, Batch& part, BadRecordProblems& bad,
                            const std::stop_token& stop) const {
  const std::int64_t first_position =
      sharding_.plan().share(part.step % steps_per_epoch_, replica).positions.begin;
  const RecordSequence sequence =
      sharding_.sequence(replica / options_.local_replicas, options_.seed, part.epoch);
  SampleReader reader(pipeline_);
  const auto read_one = [&](const SampleKey& key, Sample& sample) {
    return read(reader, key, sample, bad);
  };
  std::optional<MixupStep> mixup;
  if (pipeline_.mixup_alpha > 0) mixup.emplace(pipeline_);
  const MicroBatchOrder order({part.first_sample, part.first_sample + part.samples},
                              part.micro_batches);
  const auto index_of = [&](std::int64_t number) {
    return static_cast<std::size_t>(order.position(part.first_sample + number));
  };
  // Number of samples to prefetch. In a shuffled order, a record in memory is in no cache; this far
  // ahead, it is loaded while others are read.
  constexpr std::int64_t kAhead = 16;
  std::array<std::int64_t, kAhead> next_ids{};
  const auto look_ahead = [&](std::int64_t number) {
    if (number >= samples.end) return;
    const std::int64_t record_id = sequence[first_position + number];
    next_ids[static_cast<std::size_t>(number % kAhead)] = record_id;
    pipeline_.source->prefetch(record_id);
  };
  for (std::int64_t i = 0; i < kAhead; ++i) look_ahead(samples.begin + i);
  Sample sample = part.sample(index_of(samples.begin));  // others belong to other threads
  for (std::int64_t number = samples.begin; number < samples.end; ++number) {
    if (stop.stop_requested()) return;
    const std::size_t i = index_of(number);
    const std::int64_t position = first_position + number;
    const std::int64_t record_id = next_ids[static_cast<std::size_t>(number % kAhead)];
    look_ahead(number + kAhead);
    sequence.for_each_block_ahead(position, [&](Range ids) { pipeline_.source->will_need(ids); });
    part.move_to(i, sample);
    sample.weight = 1;
    const SampleKey key = {options_.seed, part.epoch, record_id};
    if (mixup) {
      const MixupStep::Mixed mixed = mixup->read(key, sample, read_one);
      part.record_ids[i] = mixed.record_id;
      part.partner_labels[i] = mixed.partner_label;
      part.label_weights[i] = mixed.own_weight;
    } else {
      part.record_ids[i] = read_one(key, sample);
    }
    if (!part.weights.empty()) part.weights[i] = sample.weight;
  }
}

/// Returns the id of the record in `sample`: the key's or, if bad records are tolerated and not
/// marked, the next readable one. Thus batches and steps are unchanged on all ranks, whichever rank
/// encounters a bad record.
std::int64_t BatchReader::read(SampleReader& reader, SampleKey key, Sample& sample,
                               BadRecordProblems& bad) const {
  const RecordSource& source = *pipeline_.source;
  for (std::int64_t tried = 0; tried < source.size(); ++tried) {
    try {
      reader.read(key, sample);
      return key.record_id;
    } catch (const Error& error) {
      if (error.category() != ErrorCategory::data) throw;
      if (!pipeline_.bad_records && options_.names_remedy) throw_tolerable(error);
      if (!pipeline_.bad_records) throw;
      bad.emplace(key.record_id, error.what());
      check(bad);
      if (options_.marks_bad) return -1 - key.record_id;
    }
    key.record_id = (key.record_id + 1) % source.size();
  }
  throw Error(ErrorCategory::data, source.info().description, "expected a readable record",
              fmt::format("all {} are bad", source.size()));
}

void BatchReader::check(const BadRecordProblems& bad) const {
  const std::int64_t limit = pipeline_.bad_records.value_or(0);
  if (static_cast<std::int64_t>(bad.size()) > limit)
    throw_too_many_bad(limit, bad.rbegin()->second);
}

}  // namespace lockstep::inline v0::data
