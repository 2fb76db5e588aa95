// Checks that all members use the same layout of a flat buffer.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::allreduce {

/// One parameter of a flat buffer.
struct LayoutEntry {
  std::string name;            ///< name of a parameter or another array
  std::uint64_t elements = 0;  ///< number of elements
};

/// Compares `layout` over all members (by hash; entry by entry only on a mismatch). Throws the same
/// Error (communication) on every member, naming the first parameter that differs: "[all_reduce]
/// expected the same parameters on all replicas; dense/bias has 10 elements on replica 0 and 11 on
/// replica 2". The group itself stays usable. Collective.
void check_layout(const Communicator& group, std::span<const LayoutEntry> layout);

}  // namespace lockstep::inline v0::allreduce
