#include "lockstep/interop/torch/data/batch_tensors.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::torch {
namespace {

using BatchPointer = std::shared_ptr<data::Batch>;

at::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::uint8:
      return at::kByte;
    case ElementType::int32:
      return at::kInt;
    case ElementType::int64:
      return at::kLong;
    case ElementType::float32:
      return at::kFloat;
    case ElementType::bytes:
      break;
  }
  LOCKSTEP_CHECK(type != ElementType::bytes);
  return at::kByte;
}

/// A view of `memory`, which `owner` has.
at::Tensor view_in(const BatchPointer& owner, void* memory, at::IntArrayRef sizes,
                   at::ScalarType type) {
  return at::from_blob(
      memory, sizes, [owner](void*) {}, at::TensorOptions().dtype(type));
}

/// [samples, shape...]
std::vector<std::int64_t> sizes_of(const data::TensorArray& array, const data::TensorSpec& spec,
                                   std::int64_t samples) {
  std::vector<std::int64_t> sizes{samples};
  sizes.insert(sizes.end(), spec.shape.begin(), spec.shape.end());
  if (spec.is_ragged() && array.unit > 0)
    sizes[1] = static_cast<std::int64_t>(array.elements / array.unit);
  const std::int64_t elements = data::element_count(std::span(sizes).subspan(1));
  if (array.name != spec.name || elements != static_cast<std::int64_t>(array.elements))
    throw Error(ErrorCategory::input, "batch tensors",
                fmt::format("expected the spec of the batch, which has {} of {} elements",
                            array.name, array.elements),
                "got " + data::to_string(spec));
  return sizes;
}

NamedTensors views_of(const BatchPointer& owner, std::vector<data::TensorArray>& arrays,
                      const std::vector<data::TensorSpec>& specs) {
  if (arrays.size() != specs.size())
    throw Error(
        ErrorCategory::input, "batch tensors",
        fmt::format("expected the spec of the batch, which has {} such tensors", arrays.size()),
        fmt::format("got {}", specs.size()));
  NamedTensors::Pairs pairs;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    data::TensorArray& array = arrays[i];
    if (array.type == ElementType::bytes) continue;
    pairs.emplace_back(array.name,
                       view_in(owner, array.bytes.data(), sizes_of(array, specs[i], owner->samples),
                               scalar_type(array.type)));
  }
  return pairs;
}

/// A pointer that owns nothing.
BatchPointer borrowed(data::Batch& batch) { return {BatchPointer(), &batch}; }

}  // namespace

NamedTensors inputs_of(const BatchPointer& batch, const data::SampleSpec& spec) {
  return views_of(batch, batch->inputs, spec.inputs);
}

NamedTensors targets_of(const BatchPointer& batch, const data::SampleSpec& spec) {
  return views_of(batch, batch->targets, spec.targets);
}

at::Tensor weights_of(const BatchPointer& batch) {
  if (batch->weights.empty()) return {};
  return view_in(batch, batch->weights.data(), {batch->samples}, at::kFloat);
}

NamedTensors inputs_of(data::Batch& batch, const data::SampleSpec& spec) {
  return inputs_of(borrowed(batch), spec);
}

NamedTensors targets_of(data::Batch& batch, const data::SampleSpec& spec) {
  return targets_of(borrowed(batch), spec);
}

at::Tensor weights_of(data::Batch& batch) { return weights_of(borrowed(batch)); }

}  // namespace lockstep::inline v0::torch
