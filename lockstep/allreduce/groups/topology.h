// The nodes of ranks, and which routes connect them.
#pragma once

#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/route.h"

namespace lockstep::inline v0::allreduce {

/// The ranks of a job by node. The same on all ranks, except node().
class Topology {
 public:
  /// Collective over `ranks`.
  explicit Topology(const Communicator& ranks);

  /// The ranks of this rank's node, in the order of `ranks`.
  const Communicator& node() const { return node_; }
  int ranks() const { return ranks_; }  ///< number of ranks
  int nodes() const { return nodes_; }  ///< number of nodes
  /// Number of ranks of the largest node.
  int max_ranks_per_node() const { return max_ranks_per_node_; }

  /// Routes worth using between these ranks, on CPUs, fastest (expected) first. Shared memory
  /// requires several ranks on a node: on the only node, or within several.
  std::vector<Route> routes() const;
  /// The subset of routes() from which `automatic` selects.
  std::vector<Route> candidates() const;

 private:
  Communicator node_;
  int ranks_ = 1;
  int nodes_ = 1;
  int max_ranks_per_node_ = 1;
  // False if ranks of a host are in separate containers.
  bool shares_memory_ = false;
  bool is_over_mpi_ = false;
};

}  // namespace lockstep::inline v0::allreduce
