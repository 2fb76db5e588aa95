// Makes MPI report each rank of this host as a separate node.
#pragma once

namespace lockstep::inline v0::pretend {

/// TEST_RANKS_ARE_NODES in the environment does so for the whole program, whose session learns the
/// nodes when it starts.
class RanksAreNodes {
 public:
  /// During its lifetime, each rank is alone on its node. Use it on all ranks at the same time.
  RanksAreNodes();
  ~RanksAreNodes();
  RanksAreNodes(const RanksAreNodes&) = delete;
  RanksAreNodes& operator=(const RanksAreNodes&) = delete;
};

}  // namespace lockstep::inline v0::pretend
