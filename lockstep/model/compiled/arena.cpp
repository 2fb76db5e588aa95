#include "lockstep/model/compiled/arena.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep::inline v0::model {

bool Lifetime::overlaps(const Lifetime& other) const {
  const auto share_a_time = [](int begin, int end, int other_begin, int other_end) {
    return begin <= other_end && other_begin <= end;  // false for the empty interval 0 to -1
  };
  return share_a_time(first, last, other.first, other.last) ||
         share_a_time(second_first, second_last, other.first, other.last) ||
         share_a_time(first, last, other.second_first, other.second_last) ||
         share_a_time(second_first, second_last, other.second_first, other.second_last);
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
    const Lifetime& current = lifetimes[i];
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const Lifetime& neighbor = lifetimes[other];
      if (!current.overlaps(neighbor)) continue;
      if (offset + current.bytes <= layout.offsets[other]) break;  // fits in the gap before it
      const std::size_t end = layout.offsets[other] + neighbor.bytes;
      offset = std::max(offset, (end + kAlignment - 1) / kAlignment * kAlignment);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + current.bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {},
                                           [&](std::size_t p) { return layout.offsets[p]; }),
                  i);
  }
  return layout;
}

}  // namespace lockstep::inline v0::model
