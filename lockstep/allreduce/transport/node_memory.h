// Memory that the ranks of one node see: who has which, and where it is mapped here.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/base/shared_segment.h"
#include "lockstep/device/buffer.h"

namespace lockstep::allreduce {

/// This rank's view of the segments of all ranks of its node.
class NodeMemory final : public Addresses {
 public:
  /// Collective over `ranks`, which are on one node.
  explicit NodeMemory(MPI_Comm ranks);

  /// Zeroed memory of this rank that the others map when it first takes part in an operation; they keep it mapped until
  /// their NodeMemory dies. `self` keeps this object alive as long as the buffer.
  static device::Buffer allocate(const std::shared_ptr<NodeMemory>& self, std::size_t bytes);

  /// A place with segment 0 is not in memory of this object.
  Place place_of(const std::byte* data, std::size_t bytes) override;
  /// Throws Error (communication) where the other rank's memory cannot be mapped.
  std::byte* at(int member, const Place& place) override;

 private:
  struct Owned {
    SharedSegment memory;
    std::uint64_t id = 0;
  };

  std::vector<SharedSegment::Owner> owners_;  // of all ranks
  int rank_;
  std::map<std::byte*, Owned> own_;  // by address
  std::map<std::pair<int, std::uint64_t>, SharedSegment> mapped_;
};

/// Maps memory of `bytes` bytes that all `ranks`, which are on one node, see from now on. Collective. Throws Error
/// (communication), the same on all, where one of them cannot.
std::shared_ptr<std::byte> make_common_memory(MPI_Comm ranks, std::size_t bytes);

/// Whether the ranks of every node see each other's memory. Collective over `ranks` and over `node`, those of this
/// node.
bool can_share_memory(MPI_Comm ranks, MPI_Comm node);

/// Whether the ranks have a core each, by their affinity. Collective over `ranks`, which are on one node.
bool have_own_cores(MPI_Comm ranks);

}  // namespace lockstep::allreduce
