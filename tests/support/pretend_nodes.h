// Makes MPI report each rank of this host as a separate node.
#pragma once

namespace lockstep::inline v0::pretend {

class RanksAreNodes {
 public:
  /// During its lifetime, each rank is alone on its node. Use it on all ranks at the same time.
  RanksAreNodes();
  ~RanksAreNodes();
  RanksAreNodes(const RanksAreNodes&) = delete;
  RanksAreNodes& operator=(const RanksAreNodes&) = delete;
};

}  // namespace lockstep::inline v0::pretend
