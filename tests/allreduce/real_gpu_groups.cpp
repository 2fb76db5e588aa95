// Groups on the GPUs of this machine: on the first one, and with NCCL on one to all of them.
#include <fmt/format.h>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/allreduce/wrapped_groups.h"

namespace lockstep::inline v0::allreduce {
namespace {

GroupKind kind_on_gpus(const std::string& name, const std::vector<device::Device>& gpus,
                       Route route, bool is_ours) {
  return {.name = fmt::format("{}_{}", name, gpus.size()),
          .size = static_cast<int>(gpus.size()),
          .make = [gpus, route] { return on_gpus(make_device_group(gpus, route), gpus); },
          .is_exact = is_ours,
          .adds_in_member_order = is_ours && gpus.size() > 2};
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  std::vector<GroupKind> kinds;
  const std::vector<device::GpuInfo> found = device::list_gpus();
  if (found.empty()) return kinds;
  for (const std::size_t size : {1, 2, 5}) {
    const std::vector<device::Device> one(size, {device::DeviceKind::gpu, 0});
    kinds.push_back(kind_on_gpus("in_gpu", one, Route::automatic, true));
    if (size > 1) kinds.push_back(kind_on_gpus("staged", one, Route::staged, true));
  }
  if (nccl_built_version() == "absent") return kinds;
  std::vector<device::Device> gpus;
  while (gpus.size() < found.size()) {
    gpus.push_back({device::DeviceKind::gpu, static_cast<int>(gpus.size())});
    kinds.push_back(kind_on_gpus("nccl", gpus, Route::nccl, false));
  }
  return kinds;
}

}  // namespace lockstep::inline v0::allreduce
