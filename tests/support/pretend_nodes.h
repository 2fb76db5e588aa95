// Ranks of this host that MPI reports as nodes of their own.
#pragma once

namespace lockstep::pretend {

class RanksAreNodes {
 public:
  /// As long as this lives, each rank is alone on its node. On all ranks at the same time.
  RanksAreNodes();
  ~RanksAreNodes();
  RanksAreNodes(const RanksAreNodes&) = delete;
  RanksAreNodes& operator=(const RanksAreNodes&) = delete;
};

}  // namespace lockstep::pretend
