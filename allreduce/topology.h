// Which ranks share a node, and what follows for how they can reduce.
#pragma once

#include <mpi.h>

#include <vector>

#include "allreduce/route.h"

namespace lockstep::allreduce {

/// The ranks of a job by node. The same on all ranks, but for node().
class Topology {
 public:
  /// Collective over `ranks`.
  explicit Topology(MPI_Comm ranks);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology();

  /// The ranks of this rank's node, in the order of `ranks`. Lives as long as this object.
  MPI_Comm node() const { return node_; }
  int ranks() const { return ranks_; }
  int nodes() const { return nodes_; }
  int most_ranks_of_a_node() const { return most_ranks_; }
  /// Whether the ranks of every node see each other's memory; those of one host in containers of their own do not.
  bool shares_memory() const { return shares_memory_; }

  /// Routes that connect these ranks and promise the same bits in every run, the most promising one first:
  /// shared_memory within one node, hierarchical between nodes with several ranks, and always ring.
  std::vector<Route> candidates() const;

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  int ranks_ = 1;
  int nodes_ = 1;
  int most_ranks_ = 1;
  bool shares_memory_ = false;
};

}  // namespace lockstep::allreduce
