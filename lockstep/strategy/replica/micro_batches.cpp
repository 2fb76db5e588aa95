#include "lockstep/strategy/replica/micro_batches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::strategy {

namespace {

/// Returns the samples `range` of an array with elements of type T.
template <typename T>
std::span<const T> part_of(const data::TensorArray& array, data::Range range) {
  return array.as<T>().subspan(static_cast<std::size_t>(range.begin) * array.elements,
                               static_cast<std::size_t>(range.size()) * array.elements);
}

/// "image, table"
template <typename Named>
std::string names_of(const std::vector<Named>& tensors) {
  std::vector<std::string> names;
  for (const Named& tensor : tensors) names.push_back(tensor.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

MicroBatches::MicroBatches(const model::Network& network, int accumulate, int replicas,
                           const model::TotalLoss& loss)
    : network_(network.name()), accumulate_(accumulate), replicas_(replicas) {
  for (const model::NetworkInput& input : network.inputs()) inputs_.push_back({input.name});
  for (const model::LossTerm& term : loss.terms()) terms_.push_back({term.target});
  if (inputs_.size() > 1) input_views_.resize(inputs_.size());
  more_targets_.resize(terms_.size() - 1);
}

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
  const auto micro_batch_range = [&](data::Range samples) {
    return data::MicroBatchOrder(samples, part.micro_batches).range(number);
  };
  return micro_batch_range({0, part.global_samples}).begin +
         micro_batch_range({0, part.first_sample}).size();
}

// Compares names once per batch; the indices change only with the data set.
const data::TensorArray* MicroBatches::find(const std::vector<data::TensorArray>& arrays,
                                            Source& source, bool is_only) {
  if (arrays.empty()) return nullptr;
  if (source.name.empty() || (is_only && arrays.size() == 1)) return &arrays.front();
  if (source.place >= arrays.size() || arrays[source.place].name != source.name) {
    const auto found = std::ranges::find(arrays, source.name, &data::TensorArray::name);
    if (found == arrays.end()) return nullptr;
    source.place = static_cast<std::size_t>(found - arrays.begin());
  }
  return &arrays[source.place];
}

model::InputView MicroBatches::input(const data::Batch& part, std::size_t index,
                                     data::Range range) {
  const data::TensorArray* array = find(part.inputs, inputs_[index], inputs_.size() == 1);
  if (array == nullptr)
    throw Error(ErrorCategory::data, network_, "expected inputs " + names_of(inputs_),
                "got " + names_of(part.inputs));
  if (array->type == ElementType::int32) return {.indices = part_of<std::int32_t>(*array, range)};
  if (array->type == ElementType::uint8)
    return {.pixels = part_of<std::uint8_t>(*array, range), .normalization = part.normalization};
  return {.features = part_of<float>(*array, range)};
}

model::Targets MicroBatches::targets(const data::Batch& part, std::size_t term, data::Range range) {
  const auto first = static_cast<std::size_t>(range.begin);
  const auto count = static_cast<std::size_t>(range.size());
  model::Targets targets;
  if (!part.weights.empty()) targets.sample_weights = std::span(part.weights).subspan(first, count);
  const data::TensorArray* array = find(part.targets, terms_[term], terms_.size() == 1);
  if (array == nullptr) return targets;
  if (array->type == ElementType::float32) targets.values = part_of<float>(*array, range);
  if (array->type != ElementType::int32) return targets;
  targets.labels = part_of<std::int32_t>(*array, range);
  if (!part.partner_labels.empty()) {
    targets.partner_labels = std::span(part.partner_labels).subspan(first, count);
    targets.weights = std::span(part.label_weights).subspan(first, count);
  }
  return targets;
}

model::BatchView MicroBatches::view(const data::Batch& part, data::Range range) {
  model::BatchView view{.samples = range.size()};
  if (view.samples == 0) return view;
  for (std::size_t k = 0; k < input_views_.size(); ++k) input_views_[k] = input(part, k, range);
  view.inputs = input_views_;
  if (input_views_.empty()) {
    const model::InputView only = input(part, 0, range);
    view.features = only.features;
    view.pixels = only.pixels;
    view.indices = only.indices;
    view.normalization = only.normalization;
  }
  view.targets = targets(part, 0, range);
  for (std::size_t k = 0; k < more_targets_.size(); ++k)
    more_targets_[k] = targets(part, k + 1, range);
  view.more_targets = more_targets_;
  return view;
}

}  // namespace lockstep::inline v0::strategy
