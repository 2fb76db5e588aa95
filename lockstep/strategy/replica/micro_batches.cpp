#include "lockstep/strategy/replica/micro_batches.h"

#include <algorithm>
#include <span>

#include "lockstep/model/layers/layer.h"

namespace lockstep::strategy {

MicroBatches::MicroBatches(const model::Network& network, int accumulate, int replicas)
    : feature_count_(static_cast<std::size_t>(model::element_count(network.input_shape()))),
      accumulate_(accumulate),
      replicas_(replicas) {}

std::int64_t MicroBatches::count(const data::Batch& part) const {
  const std::int64_t most =
      replicas_ > 0 ? (part.global_samples + replicas_ - 1) / replicas_ : part.samples;
  return std::clamp<std::int64_t>(most, 1, accumulate_);
}

data::Range MicroBatches::range(const data::Batch& part, std::int64_t number) const {
  return data::split(part.samples, count(part), number);
}

model::BatchView MicroBatches::view(const data::Batch& part, data::Range range) const {
  const auto first = static_cast<std::size_t>(range.begin);
  const auto count = static_cast<std::size_t>(range.size());
  model::BatchView view;
  view.samples = range.size();
  if (part.pixels.empty()) {
    view.features =
        std::span(part.features).subspan(first * feature_count_, count * feature_count_);
  } else {
    view.pixels = std::span(part.pixels).subspan(first * feature_count_, count * feature_count_);
    view.normalization = part.normalization;
  }
  if (!part.labels.empty()) view.targets.labels = std::span(part.labels).subspan(first, count);
  if (!part.partner_labels.empty()) {
    view.targets.partner_labels = std::span(part.partner_labels).subspan(first, count);
    view.targets.weights = std::span(part.label_weights).subspan(first, count);
  }
  if (part.samples > 0 && !part.targets.empty()) {
    const std::size_t width = part.targets.size() / static_cast<std::size_t>(part.samples);
    view.targets.values = std::span(part.targets).subspan(first * width, count * width);
  }
  return view;
}

}  // namespace lockstep::strategy
