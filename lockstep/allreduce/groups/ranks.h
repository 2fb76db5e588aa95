// The ranks of a job, or some of them, as a group for setup and control: the groups that reduce
// gradients are made from it (groups.h). Its operations are used by one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::allreduce {

class MessageGroup;
class Transport;

/// The members of `transport`, which the group uses alone; collective over them. For one member it
/// does not use `transport`.
Communicator make_ranks(std::shared_ptr<Transport> transport);

/// `members` of `ranks`, in this order, on these; nullopt on the others. Every rank of `ranks`
/// calls it, in the same order among the functions here; only `members` wait for each other.
std::optional<Communicator> make_subset(const Communicator& ranks, std::span<const int> members);

/// The number of the node of `rank`; equal numbers are on one host.
int node_of(const Communicator& ranks, int rank);
/// Whether MPI carries their messages.
bool is_over_mpi(const Communicator& ranks);
/// The ranks of this rank's node, in the order of `ranks`. Collective over `ranks`.
Communicator ranks_of_node(const Communicator& ranks);

/// The route ring between the members of `transport`, with options that fit their nodes. Collective
/// over them; the group uses `transport` alone.
std::shared_ptr<MessageGroup> make_ring_of(std::shared_ptr<Transport> transport);

}  // namespace lockstep::inline v0::allreduce
