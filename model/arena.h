// Places the buffers of a plan in one piece of memory: two may share bytes if they are never needed at the same time.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::model {

/// A buffer's size and the interval of time, both ends included, in which its content matters.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct ArenaLayout {
  std::vector<std::size_t> offsets;  ///< one per lifetime; multiples of 64
  std::size_t bytes = 0;
};

/// Greedy by size: the largest buffer first, each at the lowest offset where it meets none that lives at the same time
/// (Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020). Deterministic.
ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes);

}  // namespace lockstep::model
