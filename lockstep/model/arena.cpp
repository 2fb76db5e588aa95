#include "lockstep/model/arena.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep::model {

bool Lifetime::overlaps(const Lifetime& other) const {
  const auto share_a_time = [](int begin, int end, int other_begin, int other_end) {
    return begin <= other_end && other_begin <= end;  // false for the empty one, 0 to -1
  };
  return share_a_time(first, last, other.first, other.last) ||
         share_a_time(again_first, again_last, other.first, other.last) ||
         share_a_time(first, last, other.again_first, other.again_last) ||
         share_a_time(again_first, again_last, other.again_first, other.again_last);
}

ArenaLayout plan_arena(const std::vector<Lifetime>& lifetimes) {
  constexpr std::size_t kAlignment = 64;
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return lifetimes[i].bytes; });

  ArenaLayout layout{.offsets = std::vector<std::size_t>(lifetimes.size()), .bytes = 0};
  std::vector<std::size_t> placed;  // sorted by offset
  for (const std::size_t i : order) {
    const Lifetime& mine = lifetimes[i];
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const Lifetime& theirs = lifetimes[other];
      if (!mine.overlaps(theirs)) continue;
      if (offset + mine.bytes <= layout.offsets[other]) break;  // fits in the gap before it
      const std::size_t end = layout.offsets[other] + theirs.bytes;
      offset = std::max(offset, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + mine.bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {},
                                           [&](std::size_t p) { return layout.offsets[p]; }),
                  i);
  }
  return layout;
}

}  // namespace lockstep::model
