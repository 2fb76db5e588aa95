#include "lockstep/model/compiled/arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/support/numbers.h"

namespace lockstep::inline v0::model {
namespace {

bool live_together(const Lifetime& a, const Lifetime& b) {
  const auto is_live = [](const Lifetime& one, int time) {
    return (one.first <= time && time <= one.last) ||
           (one.second_first <= time && time <= one.second_last);
  };
  for (int time = 0; time < 200; ++time)
    if (is_live(a, time) && is_live(b, time)) return true;
  return false;
}

// Two buffers needed at one time share no byte, all lie in the arena, aligned.
void expect_valid(const std::vector<Lifetime>& lifetimes, const ArenaLayout& layout) {
  ASSERT_EQ(layout.offsets.size(), lifetimes.size());
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    EXPECT_EQ(layout.offsets[i] % 64, 0u);
    EXPECT_LE(layout.offsets[i] + lifetimes[i].bytes, layout.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      if (!live_together(lifetimes[i], lifetimes[j])) continue;
      const bool apart = layout.offsets[i] + lifetimes[i].bytes <= layout.offsets[j] ||
                         layout.offsets[j] + lifetimes[j].bytes <= layout.offsets[i];
      EXPECT_TRUE(apart) << "buffers " << j << " and " << i;
    }
  }
}

TEST(Arena, IsEmptyWithoutBuffers) { EXPECT_EQ(plan_arena({}).bytes, 0u); }

TEST(Arena, DisjointLifetimesShareMemory) {
  const std::vector<Lifetime> chain = {{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 5}};
  const ArenaLayout layout = plan_arena(chain);
  expect_valid(chain, layout);
  EXPECT_LE(layout.bytes, 1024u);
}

TEST(Arena, BothEndsOfALifetimeCount) {
  const std::vector<Lifetime> touching = {{64, 0, 1}, {64, 1, 2}};
  const ArenaLayout layout = plan_arena(touching);
  expect_valid(touching, layout);
  EXPECT_EQ(layout.bytes, 128u);
}

TEST(Arena, MemoryIsReusedBetweenTwoLifetimes) {
  const std::vector<Lifetime> lifetimes = {{1000, 0, 1, 6, 7}, {1000, 2, 5}, {64, 8, 9}};
  const ArenaLayout layout = plan_arena(lifetimes);
  expect_valid(lifetimes, layout);
  EXPECT_LE(layout.bytes, 1024u);
  const std::vector<Lifetime> touching = {{64, 0, 1, 6, 7}, {64, 2, 6}, {64, 7, 9, 10, 11}};
  expect_valid(touching, plan_arena(touching));
  EXPECT_EQ(plan_arena(touching).bytes, 128u);
}

TEST(Arena, HoldsForManyBuffers) {
  std::vector<Lifetime> lifetimes;
  const auto random = labels(600, 1000, 11);
  for (std::size_t i = 0; i + 2 < random.size(); i += 3)
    lifetimes.push_back({static_cast<std::size_t>(random[i]), random[i + 1] % 50,
                         random[i + 1] % 50 + random[i + 2] % 10});
  for (std::size_t i = 0; i < lifetimes.size(); i += 3) {
    lifetimes[i].second_first = 70 + static_cast<int>(i % 50);
    lifetimes[i].second_last = lifetimes[i].second_first + 5;
  }
  const ArenaLayout layout = plan_arena(lifetimes);
  expect_valid(lifetimes, layout);
  EXPECT_EQ(plan_arena(lifetimes).offsets, layout.offsets) << "the same on every rank";
}

}  // namespace
}  // namespace lockstep::inline v0::model
