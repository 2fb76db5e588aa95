#include "lockstep/model/parameters.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::model {

ParameterTable::ParameterTable(std::vector<ParameterInfo> parameters) : entries_(std::move(parameters)) {
  constexpr std::size_t kAlignment = 16;  // elements: one cache line of float32
  for (ParameterInfo& entry : entries_) {
    entry.offset = flat_size_;
    entry.count = static_cast<std::size_t>(model::element_count(entry.shape));
    element_count_ += entry.count;
    constexpr std::size_t kMaxElements = std::size_t{1} << 58;  // no sum or number of bytes overflows
    if (entry.count > kMaxElements || element_count_ > kMaxElements)
      throw Error(ErrorCategory::input, entry.name, fmt::format("expected at most {} parameters", kMaxElements),
                  fmt::format("got more with shape {}", to_string(entry.shape)));
    flat_size_ += (entry.count + kAlignment - 1) / kAlignment * kAlignment;
  }
}

std::vector<std::size_t> ParameterTable::indices_by_name() const {
  std::vector<std::size_t> indices(entries_.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  std::ranges::sort(indices, {}, [this](std::size_t i) -> const std::string& { return entries_[i].name; });
  return indices;
}

const ParameterInfo* ParameterTable::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &ParameterInfo::name);
  return found == entries_.end() ? nullptr : &*found;
}

std::uint64_t ParameterTable::hash(std::span<const float> flat) const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const std::size_t i : indices_by_name()) {
    const auto bytes = std::as_bytes(slice(flat, entries_[i]));
    XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace lockstep::model
