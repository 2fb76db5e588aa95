// How many samples of a global batch each replica takes.
#pragma once

#include <cstdint>

namespace lockstep::data {

/// A half-open range of positions.
struct Range {
  std::int64_t begin = 0;                            ///< first position
  std::int64_t end = 0;                              ///< behind the last one
  std::int64_t size() const { return end - begin; }  ///< positions in it
  bool operator==(const Range&) const = default;
};

/// Part `part` of `total` samples cut into `parts` contiguous ranges whose sizes differ by at most one:
/// [part*total/parts, (part+1)*total/parts). Used for replicas of a global batch and for micro-batches of a replica's
/// part alike. May be empty.
Range split(std::int64_t total, std::int64_t parts, std::int64_t part);

/// Like split(), but the parts that are larger by one change from turn to turn, so that after any number of turns no
/// part has had over one sample more than another.
Range split_in_turn(std::int64_t total, std::int64_t parts, std::int64_t part, std::int64_t turn);

}  // namespace lockstep::data
