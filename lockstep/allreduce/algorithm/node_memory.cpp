#include "lockstep/allreduce/algorithm/node_memory.h"

#include <fmt/format.h>

#include <sched.h>

#include <algorithm>
#include <string>

#include "lockstep/allreduce/transport/job_texts.h"
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

NodeMemory::NodeMemory(const Communicator& ranks)
    : owners_(gather_values(ranks, SharedSegment::this_owner())), rank_(ranks.rank()) {}

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

std::shared_ptr<std::byte> make_common_memory(const Communicator& ranks, std::size_t bytes) {
  SharedSegment segment;
  bool has_failed = false;
  const auto attempt = [&](auto make) {
    try {
      segment = make();
    } catch (const Error&) {
      has_failed = true;
    }
  };
  SharedSegment::Handle handle;
  if (ranks.rank() == 0) {
    attempt([&] { return SharedSegment::create(bytes); });
    if (!has_failed) handle = segment.handle();
  }
  ranks.broadcast(std::as_writable_bytes(std::span(&handle, 1)), 0);
  if (ranks.rank() != 0) attempt([&] { return SharedSegment::open(handle); });
  // Also ensures that all ranks have opened the segment before any continues.
  const std::vector<char> failures = gather_values(ranks, static_cast<char>(has_failed));
  if (const auto failed = std::ranges::count(failures, 1); failed > 0)
    throw Error(
        ErrorCategory::communication, "shared-memory", "expected ranks of a node to share memory",
        fmt::format("{} of the {} ranks of this node cannot; they may be in separate containers",
                    failed, ranks.size()));
  auto keeper = std::make_shared<SharedSegment>(std::move(segment));
  return {keeper, keeper->data()};
}

bool can_share_memory(const Communicator& ranks, const Communicator& node) {
  bool cannot = false;
  try {
    make_common_memory(node, 1);
  } catch (const Error&) {
    cannot = true;
  }
  return !ranks.any(cannot);
}

bool have_own_cores(const Communicator& ranks) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const bool is_known = ::sched_getaffinity(0, sizeof(mine), &mine) == 0;
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& one : gather_values(ranks, mine)) CPU_OR(&all, &all, &one);
  return is_known && CPU_COUNT(&all) >= ranks.size();
}

}  // namespace lockstep::inline v0::allreduce
