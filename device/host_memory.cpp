#include "device/host_memory.h"

#include <algorithm>

#include "device/control_group.h"
#include "device/kernel_file.h"

namespace lockstep::device {

std::int64_t available_host_memory(const std::filesystem::path& root) {
  const std::int64_t left = memory_left_in_group(root);
  const auto kibibytes = number_in(root / "proc/meminfo", "MemAvailable:");
  return kibibytes ? std::min(left, *kibibytes * 1024) : left;
}

}  // namespace lockstep::device
