// Routes of an all-reduce, and the topology of ranks.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::allreduce {

/// `automatic` selects by topology and measurement (select_route). `nccl` and `staged` are for
/// GPUs.
enum class Route { automatic, in_process, shared_memory, ring, hierarchical, mpi, nccl, staged };

/// Parses the value of `--allreduce`. Throws Error (input) that lists the names.
Route parse_route(std::string_view name);
/// The name that parse_route accepts.
std::string to_string(Route route);

// The nodes of ranks, and which routes connect them.

/// The ranks of a job by node. The same on all ranks, except node().
class Topology {
 public:
  /// Collective over `ranks`.
  explicit Topology(MPI_Comm ranks);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology();

  /// The ranks of this rank's node, in the order of `ranks`. Owned by this object.
  MPI_Comm node() const { return node_; }
  int ranks() const { return ranks_; }                      ///< number of ranks
  int nodes() const { return nodes_; }                      ///< number of nodes
  int most_ranks_of_a_node() const { return most_ranks_; }  ///< number of ranks of the largest node
  /// Whether the ranks of every node can share memory; ranks of one host in separate containers
  /// cannot.
  bool shares_memory() const { return shares_memory_; }

  /// Routes that connect these ranks and give bitwise equal results in every run, fastest
  /// (expected) first: shared_memory within one node, hierarchical between nodes with several
  /// ranks, and always ring.
  std::vector<Route> candidates() const;

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  int ranks_ = 1;
  int nodes_ = 1;
  int most_ranks_ = 1;
  bool shares_memory_ = false;
};

}  // namespace lockstep::allreduce
