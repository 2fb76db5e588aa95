#include "lockstep/strategy/replica/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layer.h"

namespace lockstep::strategy {

MicroBatches::MicroBatches(const model::Network& network, int accumulate, int replicas)
    : feature_count_(static_cast<std::size_t>(model::element_count(network.input_shape()))),
      accumulate_(accumulate),
      replicas_(replicas) {}

std::int64_t MicroBatches::count(const data::Batch& part) const {
  LOCKSTEP_CHECK_OP(part.micro_batches, <=, accumulate_);
  if (part.micro_batches > 1) return part.micro_batches;
  const std::int64_t most =
      replicas_ > 0 ? (part.global_samples + replicas_ - 1) / replicas_ : part.samples;
  return std::clamp<std::int64_t>(most, 1, accumulate_);
}

data::Range MicroBatches::range(const data::Batch& part, std::int64_t number) const {
  if (part.micro_batches > 1)
    return data::MicroBatchOrder({part.first_sample, part.first_sample + part.samples},
                                 part.micro_batches)
        .range(number);
  return data::split(part.samples, count(part), number);
}

std::int64_t MicroBatches::first_sample(const data::Batch& part, std::int64_t number) const {
  if (part.micro_batches == 1) return part.first_sample + range(part, number).begin;
  const auto of_samples = [&](data::Range samples) {
    return data::MicroBatchOrder(samples, part.micro_batches).range(number);
  };
  return of_samples({0, part.global_samples}).begin + of_samples({0, part.first_sample}).size();
}

model::BatchView MicroBatches::view(const data::Batch& part, data::Range range) const {
  const auto first = static_cast<std::size_t>(range.begin);
  const auto count = static_cast<std::size_t>(range.size());
  model::BatchView view;
  view.samples = range.size();
  if (part.pixels().empty()) {
    view.features = part.features().subspan(first * feature_count_, count * feature_count_);
  } else {
    view.pixels = part.pixels().subspan(first * feature_count_, count * feature_count_);
    view.normalization = part.normalization;
  }
  if (!part.labels().empty()) view.targets.labels = part.labels().subspan(first, count);
  if (!part.partner_labels.empty()) {
    view.targets.partner_labels = std::span(part.partner_labels).subspan(first, count);
    view.targets.weights = std::span(part.label_weights).subspan(first, count);
  }
  if (const std::span<const float> values = part.values(); !values.empty()) {
    const std::size_t width = values.size() / static_cast<std::size_t>(part.samples);
    view.targets.values = values.subspan(first * width, count * width);
  }
  return view;
}

}  // namespace lockstep::strategy
