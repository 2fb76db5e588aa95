// The memory planner: places buffers in one arena.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::inline v0::model {

/// A buffer's size and the time intervals, both ends included, in which its contents are needed.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
  /// The second interval of a buffer that is written twice, after the first; empty by default.
  int second_first = 0;
  int second_last = -1;

  /// Whether there is a second interval.
  bool has_second() const { return second_first <= second_last; }
  /// Whether both buffers are needed at some time.
  bool overlaps(const Lifetime& other) const;
};

struct ArenaLayout {
  std::vector<std::size_t> offsets;  ///< one per lifetime; multiples of 64
  std::size_t bytes = 0;
};

/// Assigns offsets in one arena. Two buffers may share bytes if they are never needed at the same
/// time. Greedy by size: the largest buffer first, each at the lowest offset without a conflict
/// (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020).
/// Deterministic.
ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes);

}  // namespace lockstep::inline v0::model
