// Reductions of members that share memory: each reduces its own slice of all buffers in place, in
// member order. There are no messages and no copies, and every byte is read once and written once
// on every member.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/allreduce/transport/barrier.h"

namespace lockstep::inline v0::allreduce {

/// How members of a barrier find each other's buffers.
class Addresses {
 public:
  virtual ~Addresses() = default;
  /// The location of `bytes` bytes at `data`, which the other members pass to at().
  virtual Place place_of(const std::byte* data, std::size_t bytes) = 0;
  /// The address in this process of a `place` that `member` reported.
  virtual std::byte* at(int member, const Place& place) = 0;
};

/// Threads of one process.
class ProcessAddresses final : public Addresses {
 public:
  Place place_of(const std::byte* data, std::size_t bytes) override;
  std::byte* at(int member, const Place& place) override;
};

/// The addresses in this process of the buffers of all members in this round.
std::vector<std::byte*> buffers_of_all(const Barrier& barrier, Addresses& addresses);

/// Collective over the members of `barrier`, whose `values` are in shared memory. Throws Error
/// (communication), the same on all, if calls differ or a member has failed.
void direct_all_reduce(Barrier& barrier, Addresses& addresses, const Values& values, ReduceOp op);
/// Completes direct_all_reduce() for members that have already exchanged the places of their
/// values.
void direct_all_reduce_arrived(Barrier& barrier, Addresses& addresses, const Values& values,
                               ReduceOp op);
/// All-reduces values of at most Barrier::kNoteBytes, which may be in any memory.
void reduce_notes(Barrier& barrier, const Values& values, ReduceOp op);

/// Completes slice_of(values.count, type, parts, m) in member m's own values; members from `parts`
/// on complete nothing. Other members may still read `values` until the next barrier or wait.
void direct_reduce_scatter(Barrier& barrier, Addresses& addresses, const Values& values,
                           ReduceOp op, int parts);

/// Copies member m's slice, as above, to the values of all other members.
void direct_gather(Barrier& barrier, Addresses& addresses, const Values& values, int parts);

}  // namespace lockstep::inline v0::allreduce
