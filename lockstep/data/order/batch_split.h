// Division of a global batch into parts.
#pragma once

#include <cstdint>

namespace lockstep::data {

/// A half-open range of positions.
struct Range {
  std::int64_t begin = 0;                            ///< first position
  std::int64_t end = 0;                              ///< one past the last position
  std::int64_t size() const { return end - begin; }  ///< number of positions
  bool operator==(const Range&) const = default;
};

/// Part `part` of `total` samples cut into `parts` contiguous ranges whose sizes differ by at most one:
/// [part*total/parts, (part+1)*total/parts). Used for the replicas of a global batch and for the micro-batches of a
/// replica. May be empty.
Range split(std::int64_t total, std::int64_t parts, std::int64_t part);

/// Like split(), but the larger parts rotate from turn to turn: after any number of turns, the totals of the parts
/// differ by at most one sample.
Range split_in_turn(std::int64_t total, std::int64_t parts, std::int64_t part, std::int64_t turn);

}  // namespace lockstep::data
