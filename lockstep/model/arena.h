// The memory planner: places buffers in one arena.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::model {

/// A buffer's size and the time intervals, both ends included, in which its contents are needed.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
  /// Of a buffer that is written again: the second interval, after the first one. Without one it is
  /// empty.
  int again_first = 0;
  int again_last = -1;

  bool has_again() const { return again_first <= again_last; }  ///< whether there is a second one
  /// Whether there is a time at which both are needed.
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

}  // namespace lockstep::model
