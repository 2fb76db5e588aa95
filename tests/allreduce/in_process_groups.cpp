// Groups of threads.
#include <fmt/format.h>

#include "tests/allreduce/group_kinds.h"

namespace lockstep::inline v0::allreduce {

std::vector<GroupKind> group_kinds() {
  std::vector<GroupKind> kinds;
  for (const int size : {1, 2, 3, 4, 7})
    kinds.push_back({.name = fmt::format("in_process_{}", size),
                     .size = size,
                     .make = [size] { return make_in_process_group(size); },
                     .adds_in_member_order = size > 2});
  return kinds;
}

}  // namespace lockstep::inline v0::allreduce
