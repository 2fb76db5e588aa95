#include "lockstep/data/batch.h"

#include <span>

namespace lockstep::data {
namespace {

void lay_out_arrays(const std::vector<TensorSpec>& specs, std::int64_t count, bool pixels,
                    std::vector<TensorArray>& arrays) {
  arrays.resize(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TensorArray& array = arrays[i];
    array.name = specs[i].name;
    array.type = pixels && i == 0 ? ElementType::uint8 : specs[i].type;
    array.elements = static_cast<std::size_t>(specs[i].elements());
    array.bytes.resize(static_cast<std::size_t>(count) * array.elements *
                       element_bytes(array.type));
  }
}

void move_views(std::size_t index, std::vector<TensorArray>& arrays,
                std::vector<TensorView>& views) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    views[i].data =
        arrays[i].bytes.data() + index * arrays[i].elements * element_bytes(arrays[i].type);
}

std::vector<TensorView> views_of(const std::vector<TensorArray>& arrays) {
  std::vector<TensorView> views;
  for (const TensorArray& array : arrays)
    views.push_back({array.name, array.type, nullptr, array.elements});
  return views;
}

}  // namespace

void Batch::lay_out(const SampleSpec& spec, std::int64_t count, bool pixels) {
  samples = count;
  lay_out_arrays(spec.inputs, count, pixels, inputs);
  lay_out_arrays(spec.targets, count, false, targets);
  weights.resize(spec.weighted ? static_cast<std::size_t>(count) : 0);
}

Sample Batch::sample(std::size_t index) {
  Sample sample;
  sample.inputs = views_of(inputs);
  sample.targets = views_of(targets);
  move_to(index, sample);
  return sample;
}

void Batch::move_to(std::size_t index, Sample& sample) {
  move_views(index, inputs, sample.inputs);
  move_views(index, targets, sample.targets);
}

const TensorArray& Batch::input(std::string_view name) const {
  return find_tensor(std::span(inputs), "inputs of the batch", name);
}

const TensorArray& Batch::target(std::string_view name) const {
  return find_tensor(std::span(targets), "targets of the batch", name);
}

}  // namespace lockstep::data
