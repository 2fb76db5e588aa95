#include "lockstep/allreduce/algorithm/ring_reduction.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::allreduce {
namespace {

const std::vector<std::size_t> kSegmentCounts = {0, 1, 2, 3, 4, 5, 17};

TEST(SegmentSchedule, TakesEverySegmentThroughItsStagesInOrder) {
  for (const std::size_t segments : kSegmentCounts) {
    std::map<SegmentStage, std::size_t> next;
    for (const SegmentStep& step : schedule_segments(segments)) {
      // Members must do the same in the same order, and segments are in order within each stage.
      EXPECT_EQ(step.segment, next[step.stage]++);
      if (step.stage == SegmentStage::across) {
        EXPECT_LT(step.segment, next[SegmentStage::down]);
      }
      if (step.stage == SegmentStage::up) {
        EXPECT_LT(step.segment, next[SegmentStage::across]);
      }
    }
    for (const SegmentStage stage : {SegmentStage::down, SegmentStage::across, SegmentStage::up})
      EXPECT_EQ(next[stage], segments);
  }
}

TEST(SegmentSchedule, GivesASlotToOneSegmentAtATime) {
  for (const std::size_t segments : kSegmentCounts) {
    std::map<std::size_t, std::size_t> held;  // segment by slot
    for (const SegmentStep& step : schedule_segments(segments)) {
      ASSERT_LT(step.slot, kSegmentSlots);
      if (step.stage == SegmentStage::down) {
        EXPECT_FALSE(held.contains(step.slot)) << "segment " << step.segment << " of " << segments;
        held[step.slot] = step.segment;
      }
      EXPECT_EQ(held[step.slot], step.segment);
      if (step.stage == SegmentStage::up) held.erase(step.slot);
    }
    EXPECT_TRUE(held.empty());
  }
}

TEST(SegmentSchedule, HasTheNextSegmentOnItsWayDownWhileOneIsOnTheWire) {
  constexpr std::size_t kSegments = 6;
  std::size_t told_down = 0;
  for (const SegmentStep& step : schedule_segments(kSegments)) {
    if (step.stage == SegmentStage::down) ++told_down;
    if (step.stage == SegmentStage::across && step.segment + 1 < kSegments) {
      EXPECT_GE(told_down, step.segment + 2);
    }
  }
}

TEST(SegmentOf, CoversEveryElementOnce) {
  std::vector<double> storage(10'000);
  for (const std::size_t count : {1UL, 7UL, 8UL, 9UL, 1000UL, 10'000UL}) {
    const Values values{reinterpret_cast<std::byte*>(storage.data()), count, ElementType::float64};
    const std::byte* end = values.data;
    std::size_t elements = 0;
    for (std::size_t index = 0; index < segments_of(values, 64); ++index) {
      const Values segment = segment_of(values, 64, index);
      EXPECT_EQ(segment.data, end);
      EXPECT_EQ(segment.type, values.type);
      EXPECT_GT(segment.count, 0U);
      EXPECT_LE(bytes_of(segment), 64U);
      end = segment.data + bytes_of(segment);
      elements += segment.count;
    }
    EXPECT_EQ(elements, count);
  }
}

TEST(SegmentOf, HasNothingToCutOfNothing) {
  EXPECT_EQ(segments_of({nullptr, 0, ElementType::float32}, 4096), 0U);
}

}  // namespace
}  // namespace lockstep::allreduce
