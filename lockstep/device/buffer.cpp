#include "lockstep/device/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::device {

Buffer::Buffer(void* data, std::size_t bytes, Device device, Release release)
    : data_(data, std::move(release)), bytes_(bytes), device_(device) {}

Buffer HostAllocator::allocate(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Large buffers are traversed completely in every step: huge pages reduce TLB misses.
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (data == nullptr)
    throw Error(ErrorCategory::device, "memory",
                fmt::format("expected {} bytes of host memory", bytes), "the allocation failed");
  use_huge_pages(data, rounded);
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, Device{}, [](void* memory) { std::free(memory); });
}

}  // namespace lockstep::inline v0::device
