// Groups on simulated GPUs; all memory counts as GPU memory.
#include <fmt/format.h>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/support/pretend_gpu.h"

namespace lockstep::inline v0::allreduce {
namespace {

GroupKind kind_on_gpus(const std::string& name, const std::vector<device::Device>& gpus,
                       Route route, bool adds_in_member_order) {
  return {.name = fmt::format("{}_{}", name, gpus.size()),
          .size = static_cast<int>(gpus.size()),
          .make = [gpus, route] { return make_device_group(gpus, route); },
          .adds_in_member_order = adds_in_member_order && gpus.size() > 2,
          .setting = [] { return std::make_shared<pretend::AllMemoryIsOnGpus>(); }};
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  std::vector<GroupKind> kinds;
  for (const std::size_t size : {1, 2, 3, 5}) {
    const std::vector<device::Device> one_gpu(size, pretend::gpus(1).front());
    kinds.push_back(kind_on_gpus("in_gpu", one_gpu, Route::automatic, true));
  }
  for (const int size : {1, 3})
    kinds.push_back(kind_on_gpus("staged", pretend::gpus(size), Route::staged, true));
  if (nccl_built_version() == "absent") return kinds;
  for (const int size : {1, 2, 3, 4})
    kinds.push_back(kind_on_gpus("nccl", pretend::gpus(size), Route::nccl, false));
  return kinds;
}

}  // namespace lockstep::inline v0::allreduce
