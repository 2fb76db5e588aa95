#include "data/pipeline/batch_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/order/epoch_order.h"
#include "data/pipeline/sample_reader.h"

namespace lockstep::data {

BatchReader::BatchReader(Pipeline pipeline, const StreamOptions& options)
    : pipeline_(std::move(pipeline)),
      options_(options),
      steps_per_epoch_(pipeline_.steps_per_epoch()),
      gives_pixels_(options.pixels && pipeline_.gives_pixels()) {}

void BatchReader::lay_out(std::int64_t step, std::vector<Batch>& parts) const {
  const SampleSpec& spec = pipeline_.spec;
  const std::int64_t begin = step % steps_per_epoch_ * pipeline_.global_batch;
  const std::int64_t global_samples = std::min(pipeline_.global_batch, pipeline_.source->size() - begin);
  parts.resize(static_cast<std::size_t>(options_.local_replicas));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Batch& part = parts[i];
    const Range range = split(global_samples, options_.replicas, options_.first_replica + static_cast<std::int64_t>(i));
    part.step = step;
    part.epoch = step / steps_per_epoch_;
    part.first_sample = range.begin;
    part.samples = range.size();
    part.global_samples = global_samples;
    const auto samples = static_cast<std::size_t>(part.samples);
    part.record_ids.resize(samples);
    const std::size_t features = samples * static_cast<std::size_t>(spec.feature_count());
    part.features.resize(gives_pixels_ ? 0 : features);
    part.pixels.resize(gives_pixels_ ? features : 0);
    part.normalization = gives_pixels_ ? pipeline_.pixel_normalization() : device::ChannelNormalization();
    part.labels.resize(spec.classes > 0 ? samples : 0);
    part.targets.resize(samples * static_cast<std::size_t>(spec.targets));
  }
}

std::int64_t BatchReader::step_bytes() const {
  const SampleSpec& spec = pipeline_.spec;
  const std::int64_t batch = std::min(pipeline_.global_batch, pipeline_.source->size());
  const std::int64_t samples =
      split(batch, options_.replicas, options_.first_replica + options_.local_replicas - 1).end -
      split(batch, options_.replicas, options_.first_replica).begin;
  const std::size_t of_features = gives_pixels_ ? sizeof(std::uint8_t) : sizeof(float);
  const std::size_t of_label = sizeof(std::int64_t) + (spec.classes > 0 ? sizeof(std::int32_t) : 0);
  const auto bytes = static_cast<std::size_t>(spec.feature_count()) * of_features +
                     static_cast<std::size_t>(spec.targets) * sizeof(float) + of_label;
  return samples * static_cast<std::int64_t>(bytes);
}

std::int64_t BatchReader::local_samples(const std::vector<Batch>& parts) {
  std::int64_t samples = 0;
  for (const Batch& part : parts) samples += part.samples;
  return samples;
}

void BatchReader::fill(Range piece, std::vector<Batch>& parts, const std::stop_token& stop) const {
  std::int64_t before = 0;
  for (Batch& part : parts) {
    const Range samples = {std::max(piece.begin - before, std::int64_t{0}), std::min(piece.end - before, part.samples)};
    if (samples.begin < samples.end) fill_part(samples, part, stop);
    before += part.samples;
  }
}

void BatchReader::fill_part(Range samples, Batch& part, const std::stop_token& stop) const {
  const std::int64_t first_position = part.step % steps_per_epoch_ * pipeline_.global_batch + part.first_sample;
  std::optional<EpochOrder> order;
  if (pipeline_.shuffled) order.emplace(options_.seed, part.epoch, pipeline_.source->size());
  const auto features = static_cast<std::size_t>(pipeline_.spec.feature_count());
  const auto targets = static_cast<std::size_t>(pipeline_.spec.targets);
  SampleReader reader(pipeline_);
  for (auto i = static_cast<std::size_t>(samples.begin); i < static_cast<std::size_t>(samples.end); ++i) {
    if (stop.stop_requested()) return;
    const std::int64_t position = first_position + static_cast<std::int64_t>(i);
    const std::int64_t record_id = order ? (*order)[position] : position;
    Sample sample;
    if (gives_pixels_)
      sample.pixels = std::span(part.pixels).subspan(i * features, features);
    else
      sample.features = std::span(part.features).subspan(i * features, features);
    sample.targets = std::span(part.targets).subspan(i * targets, targets);
    reader.read({options_.seed, part.epoch, record_id}, sample);
    part.record_ids[i] = record_id;
    if (!part.labels.empty()) part.labels[i] = sample.label;
  }
}

}  // namespace lockstep::data
