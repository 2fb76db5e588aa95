// Memory shared by the ranks of one node.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/system/shared_segment.h"
#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::allreduce {

/// This rank's mappings of the segments of all ranks of its node.
class NodeMemory final : public Addresses {
 public:
  /// Collective over `ranks`, which are on one node.
  explicit NodeMemory(const Communicator& ranks);

  /// Zeroed memory of this rank. The other ranks map it when it is first used in an operation;
  /// after it is freed, they unmap it when they map another segment of this rank. The buffer keeps
  /// `self` alive, and may be freed by any thread while no operation uses it.
  static device::Buffer allocate(const std::shared_ptr<NodeMemory>& self, std::size_t bytes);

  /// Returns segment 0 for memory that this object did not allocate.
  Place place_of(const std::byte* data, std::size_t bytes) override;
  /// Throws Error (communication) if the other rank's memory cannot be mapped.
  std::byte* at(int member, const Place& place) override;

 private:
  struct Owned {
    SharedSegment memory;
    std::uint64_t id = 0;
  };

  std::vector<SharedSegment::Owner> owners_;  // by rank
  int rank_;
  std::mutex mutex_;                      // guards segments_
  std::map<std::byte*, Owned> segments_;  // by address
  std::map<std::pair<int, std::uint64_t>, SharedSegment> mapped_;
};

/// Maps `bytes` bytes of memory shared by all `ranks`, which are on one node. Collective. Throws
/// Error (communication), the same on all, if any rank cannot.
std::shared_ptr<std::byte> make_common_memory(const Communicator& ranks, std::size_t bytes);

/// Whether the ranks of every node can share memory. Collective over `ranks`, and over `node`, the
/// ranks of this node.
bool can_share_memory(const Communicator& ranks, const Communicator& node);

/// Whether each rank has its own core, by CPU affinity. Collective over `ranks`, which are on one
/// node.
bool have_own_cores(const Communicator& ranks);

}  // namespace lockstep::inline v0::allreduce
