// Groups on pretended GPUs, for whose members all memory is on these.
#include <fmt/format.h>

#include "lockstep/allreduce/algorithm/nccl.h"
#include "lockstep/allreduce/groups.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/support/pretend_gpu.h"

namespace lockstep::allreduce {

std::vector<GroupKind> group_kinds() {
  static const pretend::AllMemoryIsOnGpus all_memory;
  std::vector<GroupKind> kinds;
  for (const std::size_t size : {1, 2, 3, 5}) {
    const std::vector<device::Device> one_gpu(size, pretend::gpus(1).front());
    kinds.push_back({.name = fmt::format("in_gpu_{}", size), .size = static_cast<int>(size), .make = [one_gpu] {
                       return make_device_group(one_gpu);
                     }});
  }
  for (const int size : {1, 3})
    kinds.push_back({.name = fmt::format("staged_{}", size), .size = size, .make = [size] {
                       return make_device_group(pretend::gpus(size), Route::staged);
                     }});
  for (const int size : {2, 3, 4})
    if (nccl_built_version() != "absent")
      kinds.push_back({.name = fmt::format("nccl_{}", size), .size = size, .make = [size] {
                         return make_device_group(pretend::gpus(size));
                       }});
  return kinds;
}

}  // namespace lockstep::allreduce
