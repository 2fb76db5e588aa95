// Where records begin, in four bytes each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

/// Byte positions that never fall, beginning with 0. Their low halves are kept, and where the high half rises: files
/// below 4 GiB have no such place, and of a larger one there is one for each 4 GiB.
class RecordOffsets {
 public:
  std::size_t size() const { return low_.size(); }
  std::uint64_t operator[](std::size_t i) const {
    if (rises_.empty()) return low_[i];
    const auto before = std::upper_bound(rises_.begin(), rises_.end(), i) - rises_.begin();
    return static_cast<std::uint64_t>(before) << 32 | low_[i];
  }
  std::uint64_t back() const { return (*this)[size() - 1]; }
  /// `offset` is at least back(), and below 2^50: each 4 GiB of a gap costs memory.
  void push_back(std::uint64_t offset) {
    for (; rises_.size() < offset >> 32; rises_.push_back(low_.size())) continue;
    low_.push_back(static_cast<std::uint32_t>(offset));
  }
  void reserve(std::size_t count) { low_.reserve(count); }
  void shrink_to_fit() { low_.shrink_to_fit(); }

  bool operator==(const RecordOffsets&) const = default;

 private:
  std::vector<std::uint32_t> low_ = {0};
  std::vector<std::size_t> rises_;  // the number of each offset from which on the high half is one more
};

}  // namespace lockstep::data
