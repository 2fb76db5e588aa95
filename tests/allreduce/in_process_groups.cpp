// Groups of threads: in shared memory, and over sockets.
#include <fmt/format.h>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/support/tcp_group.h"

namespace lockstep::inline v0::allreduce {
namespace {

std::vector<Communicator> make_rings(int size, const RingOptions& options) {
  std::vector<Communicator> group;
  for (auto& member : connected_members(std::vector<int>(static_cast<std::size_t>(size))))
    group.emplace_back(make_ring(std::move(member), options));
  return group;
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  std::vector<GroupKind> kinds;
  for (const int size : {1, 2, 3, 4, 7})
    kinds.push_back({.name = fmt::format("in_process_{}", size),
                     .size = size,
                     .make = [size] { return make_in_process_group(size); },
                     .adds_in_member_order = size > 2});
  for (const int size : {2, 3, 5})
    kinds.push_back({.name = fmt::format("ring_over_sockets_{}", size),
                     .size = size,
                     .make = [size] { return make_rings(size, {}); }});
  kinds.push_back({.name = "tiny_segments_over_sockets", .size = 4, .make = [] {
                     return make_rings(4, {.small_bytes = 0, .segment_bytes = 256});
                   }});
  return kinds;
}

}  // namespace lockstep::inline v0::allreduce
