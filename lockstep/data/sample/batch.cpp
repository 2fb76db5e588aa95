#include "lockstep/data/sample/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

void lay_out_arrays(const std::vector<TensorSpec>& specs, std::int64_t count, bool pixels,
                    bool are_targets, std::vector<TensorArray>& arrays) {
  arrays.resize(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TensorArray& array = arrays[i];
    array.name = specs[i].name;
    array.type = pixels && i == 0 ? ElementType::uint8 : specs[i].type;
    array.elements = static_cast<std::size_t>(specs[i].elements());
    const std::size_t elements = static_cast<std::size_t>(count) * array.elements;
    array.bytes.resize(elements * element_bytes(array.type));
    array.strings.resize(array.type == ElementType::bytes ? elements : 0);
    array.lengths.clear();
    const bool is_ragged = specs[i].is_ragged();
    array.unit = is_ragged ? element_count(std::span(specs[i].shape).subspan(1)) : 0;
    array.pads_masked = is_ragged && are_targets && specs[i].classes > 0;
    array.rows.resize(is_ragged ? count : 0);
    for (RaggedRow& row : array.rows) {
      row.bytes.clear();
      row.strings.clear();
    }
  }
}

void move_views(std::size_t index, std::vector<TensorArray>& arrays,
                std::vector<TensorView>& views) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    TensorArray& array = arrays[i];
    if (!array.rows.empty())
      views[i].attach(array.rows[index]);
    else if (array.type == ElementType::bytes)
      views[i].data = reinterpret_cast<std::byte*>(array.strings.data() + index * array.elements);
    else
      views[i].data = array.bytes.data() + index * array.elements * element_bytes(array.type);
  }
}

std::vector<TensorView> views_of(const std::vector<TensorArray>& arrays) {
  std::vector<TensorView> views;
  for (const TensorArray& array : arrays)
    views.push_back({array.name, array.type, nullptr, array.elements, array.unit});
  return views;
}

void pad_array(TensorArray& array) {
  if (array.unit == 0) return;
  const bool has_strings = array.type == ElementType::bytes;
  const std::size_t size = has_strings ? sizeof(std::string) : element_bytes(array.type);
  const auto count_of = [&](const RaggedRow& row) {
    return has_strings ? row.strings.size() : row.bytes.size() / size;
  };
  array.elements = 0;
  array.lengths.clear();
  for (const RaggedRow& row : array.rows) {
    array.elements = std::max(array.elements, count_of(row));
    array.lengths.push_back(static_cast<std::int32_t>(count_of(row) / array.unit));
  }
  constexpr std::size_t kMaxBytes = std::size_t{1} << 32;
  const std::size_t count = array.rows.size();
  if (count > 0 && array.elements > kMaxBytes / size / count)
    throw Error(ErrorCategory::data, array.name,
                "expected at most 4 GiB in a padded batch (Dataset::pad() cuts long samples)",
                fmt::format("got {} samples, the longest of {} values", count, array.elements));
  if (has_strings)
    array.strings.assign(count * array.elements, {});
  else
    array.bytes.assign(count * array.elements * size, padding_of(array.pads_masked));
  for (std::size_t i = 0; i < count; ++i) {
    const RaggedRow& row = array.rows[i];
    const auto first = static_cast<std::ptrdiff_t>(i * array.elements);
    if (has_strings)
      std::ranges::copy(row.strings, array.strings.begin() + first);
    else
      std::ranges::copy(row.bytes, array.bytes.begin() + first * static_cast<std::ptrdiff_t>(size));
  }
}

}  // namespace

void Batch::resize(const SampleSpec& spec, std::int64_t count, bool pixels) {
  samples = count;
  lay_out_arrays(spec.inputs, count, pixels, false, inputs);
  lay_out_arrays(spec.targets, count, false, true, targets);
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

std::vector<std::int64_t> Batch::remove_bad() {
  std::vector<std::int64_t> bad;
  for (const std::int64_t id : record_ids)
    if (id < 0) bad.push_back(-1 - id);
  if (bad.empty()) return bad;
  const auto remove_marked = [&](auto& values) {
    const auto width = std::ssize(values) / samples;
    auto to = values.begin();
    for (std::int64_t i = 0; i < samples; ++i) {
      if (record_ids[static_cast<std::size_t>(i)] < 0) continue;
      const auto from = values.begin() + i * width;
      if (to != from) std::move(from, from + width, to);
      to += width;
    }
    values.erase(to, values.end());
  };
  for (auto* arrays : {&inputs, &targets})
    for (TensorArray& array : *arrays) {
      remove_marked(array.bytes);
      remove_marked(array.strings);
      remove_marked(array.lengths);
      remove_marked(array.rows);
    }
  remove_marked(weights);
  remove_marked(partner_labels);
  remove_marked(label_weights);
  remove_marked(record_ids);  // last: the others are selected by it
  samples = std::ssize(record_ids);
  return bad;
}

void Batch::pad() {
  for (TensorArray& input : inputs) pad_array(input);
  for (TensorArray& target : targets) pad_array(target);
}

const TensorArray& Batch::input(std::string_view name) const {
  return find_tensor(std::span(inputs), "inputs of the batch", name);
}

const TensorArray& Batch::target(std::string_view name) const {
  return find_tensor(std::span(targets), "targets of the batch", name);
}

}  // namespace lockstep::inline v0::data
