// The names of the ways that gradients take.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::allreduce {

/// `automatic` stands for a choice by topology and measurement (select_route). `nccl` and `staged` are between GPUs.
enum class Route { automatic, in_process, shared_memory, ring, hierarchical, mpi, nccl, staged };

/// Reads the `--allreduce` option. Throws Error (input) that lists the names.
Route parse_route(std::string_view name);
/// The name that parse_route reads.
std::string to_string(Route route);

// Which ranks share a node, and what follows for how they can reduce.

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
  int ranks() const { return ranks_; }                      ///< of the job
  int nodes() const { return nodes_; }                      ///< they are on
  int most_ranks_of_a_node() const { return most_ranks_; }  ///< of the node with the most
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
