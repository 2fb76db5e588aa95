#include "device/processors.h"

#include <sched.h>

#include <cerrno>

namespace lockstep::device {
namespace {

constexpr std::size_t kMostWords = 1024;  // of 1024 processors each

/// A mask as large as the kernel asks for; empty where it answers otherwise.
std::vector<cpu_set_t> read_mask() {
  for (std::vector<cpu_set_t> mask(1); mask.size() <= kMostWords; mask.assign(2 * mask.size(), cpu_set_t{})) {
    if (sched_getaffinity(0, mask.size() * sizeof(cpu_set_t), mask.data()) == 0) return mask;
    if (errno != EINVAL) break;  // which says that the mask is too small
  }
  return {};
}

std::vector<int> processors_in(const std::vector<cpu_set_t>& mask) {
  std::vector<int> processors;
  const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (std::size_t processor = 0; processor < 8 * bytes; ++processor)
    if (CPU_ISSET_S(processor, bytes, mask.data())) processors.push_back(static_cast<int>(processor));
  return processors;
}

}  // namespace

std::vector<int> allowed_processors() { return processors_in(read_mask()); }

std::vector<int> processors_of_cpu_set() {
  const std::vector<cpu_set_t> before = read_mask();
  std::vector<cpu_set_t> all = before;
  const std::size_t bytes = all.size() * sizeof(cpu_set_t);
  for (std::size_t processor = 0; processor < 8 * bytes; ++processor) CPU_SET_S(processor, bytes, all.data());
  if (before.empty() || sched_setaffinity(0, bytes, all.data()) != 0) return processors_in(before);
  std::vector<int> processors = allowed_processors();
  sched_setaffinity(0, bytes, before.data());
  return processors;
}

}  // namespace lockstep::device
