// Reductions of members that see each other's memory: each reduces its own slice of all buffers, in member order, where
// they lie. No message, no copy, and every byte is read once and written once on every member.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/allreduce/transport/barrier.h"

namespace lockstep::allreduce {

/// How members of a meeting find each other's buffers.
class Addresses {
 public:
  virtual ~Addresses() = default;
  /// What to tell the others of `bytes` bytes at `data`.
  virtual Place place_of(const std::byte* data, std::size_t bytes) = 0;
  /// Where `place` of `member` is for this member.
  virtual std::byte* at(int member, const Place& place) = 0;
};

/// Threads of one process.
class ProcessAddresses final : public Addresses {
 public:
  Place place_of(const std::byte* data, std::size_t bytes) override;
  std::byte* at(int member, const Place& place) override;
};

/// Where what each member brought to this round is for this member.
std::vector<std::byte*> buffers_of_all(const Meeting& meeting, Addresses& addresses);

/// Collective over the members of `meeting`, who all see each other's `values`. Each throws Error (communication), the
/// same on all, where their calls differ or a member has failed.
void direct_all_reduce(Meeting& meeting, Addresses& addresses, const Values& values, ReduceOp op);
/// Its second part, for members who have met with the places of their values.
void direct_all_reduce_met(Meeting& meeting, Addresses& addresses, const Values& values, ReduceOp op);
/// The same for values of at most Meeting::kNoteBytes wherever they are.
void reduce_notes(Meeting& meeting, const Values& values, ReduceOp op);

/// Slice m of slice_of(values.count, type, parts, m) is completed in member m's own values; members from `parts` on
/// complete nothing. Another member may still read `values` until the next meeting or wait.
void direct_reduce_scatter(Meeting& meeting, Addresses& addresses, const Values& values, ReduceOp op, int parts);

/// Member m brings its slice, counted as above, to all other members' values.
void direct_gather(Meeting& meeting, Addresses& addresses, const Values& values, int parts);

}  // namespace lockstep::allreduce
