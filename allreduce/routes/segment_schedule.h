// The order in which the segments of a buffer pass from GPUs to the wire and back, so that all three are busy.
#pragma once

#include <cstddef>
#include <vector>

#include "allreduce/reduce.h"

namespace lockstep::allreduce {

/// What happens to a segment: it is reduced in the node and copied down to the host, crosses the wire, and is copied up
/// and brought to all of the node. The GPU does the first and the last when told to, in this order; the host does the
/// middle itself, and waits for that segment's first stage before.
enum class SegmentStage { down, across, up };

struct SegmentStep {
  SegmentStage stage = SegmentStage::down;
  std::size_t segment = 0;
  std::size_t slot = 0;  ///< of the staging memory on the host
};

/// Three slots keep all busy: while the host has a segment on the wire, the GPU brings the one before up and the one
/// after down.
constexpr std::size_t kSegmentSlots = 3;

/// The steps of `segments` segments on kSegmentSlots slots. A slot is given to a segment only after its last one has
/// been told to go up.
std::vector<SegmentStep> schedule_segments(std::size_t segments);

std::size_t segments_of(const Values& values, std::size_t segment_bytes);
/// Segment `index` of `values`; `segment_bytes` is a multiple of 64.
Values segment_of(const Values& values, std::size_t segment_bytes, std::size_t index);

}  // namespace lockstep::allreduce
