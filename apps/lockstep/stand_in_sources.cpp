#include "apps/lockstep/stand_in_sources.h"

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::apps {
namespace {

/// Copies the samples of `part` to where their records have their place.
void place(const std::vector<float>& part, const std::vector<std::int64_t>& records, std::vector<float>& all) {
  if (records.empty()) return;
  const std::size_t size = part.size() / records.size();
  for (std::size_t i = 0; i < records.size(); ++i)
    std::ranges::copy(std::span(part).subspan(i * size, size),
                      all.begin() + records[i] * std::ssize(part) / std::ssize(records));
}

std::span<const float> part_of(const std::vector<float>& all, std::int64_t record, std::size_t size) {
  return std::span(all).subspan(static_cast<std::size_t>(record) * size, size);
}

}  // namespace

FirstRecords::FirstRecords(const data::RecordSource& source, std::int64_t records)
    : source_(source), records_(records) {
  LOCKSTEP_CHECK(records >= 1 && records <= source.size());
}

DecodedSamples::DecodedSamples(const data::Dataset& dataset) : spec_(dataset.spec()) {
  const auto records = static_cast<std::size_t>(dataset.size());
  features_.resize(records * static_cast<std::size_t>(spec_.feature_count()));
  labels_.resize(records);
  targets_.resize(records * static_cast<std::size_t>(spec_.targets));
  const auto stream = dataset.stream({.last_step = dataset.steps_per_epoch()});
  for (std::vector<data::Batch> parts; stream->next(parts);) {
    const data::Batch& batch = parts.front();
    place(batch.features, batch.record_ids, features_);
    place(batch.targets, batch.record_ids, targets_);
    for (std::size_t i = 0; i < batch.labels.size(); ++i)
      labels_[static_cast<std::size_t>(batch.record_ids[i])] = batch.labels[i];
  }
}

void DecodedSamples::read(std::int64_t record_id, data::Sample& sample) const {
  std::ranges::copy(part_of(features_, record_id, sample.features.size()), sample.features.begin());
  std::ranges::copy(part_of(targets_, record_id, sample.targets.size()), sample.targets.begin());
  sample.label = labels_[static_cast<std::size_t>(record_id)];
}

StoredRecords::StoredRecords(const data::TFRecordSource& source, std::int64_t records) : source_(source) {
  for (std::int64_t record = 0; record < records; ++record) records_.push_back(source.stored(record));
}

void StoredRecords::read(std::int64_t record_id, data::Sample& sample) const {
  if (const auto problem = source_.decoder().decode(records_[static_cast<std::size_t>(record_id)], sample)) {
    throw Error(ErrorCategory::data, "record " + std::to_string(record_id) + " of " + source_.description(),
                problem->needed, problem->given);
  }
}

}  // namespace lockstep::apps
