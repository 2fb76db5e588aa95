#include "lockstep/allreduce/algorithm/node_memory.h"

#include <fmt/format.h>

#include <sched.h>

#include <string>

#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

// An id contains the file descriptor by which other ranks open the segment, and a unique serial
// number.
std::uint64_t make_id(const SharedSegment::Handle& handle) {
  return std::uint64_t{handle.serial} << 32 | static_cast<std::uint32_t>(handle.descriptor);
}

SharedSegment::Handle make_handle(const SharedSegment::Owner& owner, std::uint64_t id) {
  return {owner, static_cast<std::int32_t>(id & 0xffffffffU), static_cast<std::uint32_t>(id >> 32)};
}

}  // namespace

NodeMemory::NodeMemory(MPI_Comm ranks)
    : owners_(static_cast<std::size_t>(size_of(ranks))), rank_(rank_in(ranks)) {
  constexpr int kBytes = sizeof(SharedSegment::Owner);
  const SharedSegment::Owner mine = SharedSegment::this_owner();
  MPI_Allgather(&mine, kBytes, MPI_BYTE, owners_.data(), kBytes, MPI_BYTE, ranks);
}

device::Buffer NodeMemory::allocate(const std::shared_ptr<NodeMemory>& self, std::size_t bytes) {
  SharedSegment segment = SharedSegment::create(bytes);
  std::byte* data = segment.data();
  const std::uint64_t id = make_id(segment.handle());
  const std::lock_guard lock(self->mutex_);
  self->segments_[data] = {std::move(segment), id};
  return {data, bytes, device::Device{}, [self](void* memory) {
            const std::lock_guard freeing(self->mutex_);
            self->segments_.erase(static_cast<std::byte*>(memory));
          }};
}

Place NodeMemory::place_of(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, owned] : segments_)
    if (owned.memory.contains(data, bytes))
      return {owned.id, static_cast<std::uint64_t>(data - begin)};
  return {};
}

std::byte* NodeMemory::at(int member, const Place& place) {
  if (place.segment == 0) return nullptr;  // no memory
  if (member == rank_) {
    const std::lock_guard lock(mutex_);
    for (const auto& [begin, owned] : segments_)
      if (owned.id == place.segment) return begin + place.offset;
    LOCKSTEP_CHECK(false && "a place in memory of this rank that it does not have");
  }
  const auto key = std::pair(member, place.segment);
  auto found = mapped_.find(key);
  if (found == mapped_.end()) {
    const auto handle_of = [&](std::uint64_t segment) {
      return make_handle(owners_[static_cast<std::size_t>(member)], segment);
    };
    std::erase_if(mapped_, [&](const auto& entry) {
      const auto& [owner, segment] = entry.first;
      return owner == member && !SharedSegment::exists(handle_of(segment));
    });
    found = mapped_.emplace(key, SharedSegment::open(handle_of(place.segment))).first;
  }
  return found->second.data() + place.offset;
}

std::shared_ptr<std::byte> make_common_memory(MPI_Comm ranks, std::size_t bytes) {
  const int rank = rank_in(ranks);
  SharedSegment segment;
  std::string failure;
  const auto attempt = [&](auto make) {
    try {
      segment = make();
    } catch (const Error& error) {
      failure = error.what();
    }
  };
  SharedSegment::Handle handle;
  if (rank == 0) attempt([&] { return SharedSegment::create(bytes); });
  if (rank == 0 && failure.empty()) handle = segment.handle();
  MPI_Bcast(&handle, sizeof(handle), MPI_BYTE, 0, ranks);
  if (rank != 0) attempt([&] { return SharedSegment::open(handle); });
  int failed = failure.empty() ? 0 : 1;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_SUM, ranks);
  if (failed > 0)
    throw Error(
        ErrorCategory::communication, "shared-memory", "expected ranks of a node to share memory",
        fmt::format("{} of the {} ranks of this node cannot; they may be in separate containers",
                    failed, size_of(ranks)));
  // The reduction above also ensures that all ranks have opened the segment before any continues.
  auto keeper = std::make_shared<SharedSegment>(std::move(segment));
  return {keeper, keeper->data()};
}

bool can_share_memory(MPI_Comm ranks, MPI_Comm node) {
  int can = 1;
  try {
    make_common_memory(node, 1);
  } catch (const Error&) {
    can = 0;
  }
  MPI_Allreduce(MPI_IN_PLACE, &can, 1, MPI_INT, MPI_MIN, ranks);
  return can != 0;
}

bool have_own_cores(MPI_Comm ranks) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (::sched_getaffinity(0, sizeof(mine), &mine) != 0) return false;
  cpu_set_t all;
  MPI_Allreduce(&mine, &all, sizeof(mine), MPI_BYTE, MPI_BOR, ranks);
  return CPU_COUNT(&all) >= size_of(ranks);
}

}  // namespace lockstep::inline v0::allreduce
