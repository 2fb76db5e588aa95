#include "lockstep/device/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::device {

Buffer::Buffer(void* data, std::size_t bytes, Device device, Release release)
    : data_(data, std::move(release)), bytes_(bytes), device_(device) {}

Buffer HostAllocator::allocate(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  // Large buffers are walked from end to end every step: huge pages spare the TLB.
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr)
    throw Error(ErrorCategory::device, "memory", fmt::format("needed {} bytes of host memory", bytes),
                "the system refused");
  if (alignment == kHugePage) ::madvise(data, rounded, MADV_HUGEPAGE);
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, Device{}, [](void* memory) { std::free(memory); });
}

}  // namespace lockstep::device
