#include "allreduce/routes/segment_schedule.h"

#include <algorithm>

namespace lockstep::allreduce {

std::vector<SegmentStep> schedule_segments(std::size_t segments) {
  std::vector<SegmentStep> steps;
  const auto add = [&](SegmentStage stage, std::size_t segment) {
    if (segment < segments) steps.push_back({stage, segment, segment % kSegmentSlots});
  };
  // One segment less than there are slots is ahead: the last slot is that of the segment that goes up.
  constexpr std::size_t kAhead = kSegmentSlots - 1;
  for (std::size_t segment = 0; segment < kAhead; ++segment) add(SegmentStage::down, segment);
  for (std::size_t segment = 0; segment < segments; ++segment) {
    add(SegmentStage::across, segment);
    add(SegmentStage::up, segment);
    add(SegmentStage::down, segment + kAhead);
  }
  return steps;
}

std::size_t segments_of(const Values& values, std::size_t segment_bytes) {
  return (bytes_of(values) + segment_bytes - 1) / segment_bytes;
}

Values segment_of(const Values& values, std::size_t segment_bytes, std::size_t index) {
  const std::size_t width = bytes_per_element(values.type);
  const std::size_t begin = index * (segment_bytes / width);
  const std::size_t end = std::min(values.count, begin + segment_bytes / width);
  return {values.data + begin * width, end - begin, values.type};
}

}  // namespace lockstep::allreduce
