#include <fmt/format.h>

#include "allreduce/routes/nccl.h"
#include "tests/allreduce/group_kinds.h"
#include "tests/allreduce/on_gpus.h"

namespace lockstep::allreduce {
namespace {

GroupKind kind_on_gpus(const std::string& name, const std::vector<device::Device>& gpus, bool is_exact) {
  return {.name = fmt::format("{}_{}", name, gpus.size()),
          .size = static_cast<int>(gpus.size()),
          .make = [gpus] { return on_gpus(make_device_group(gpus), gpus); },
          .is_exact = is_exact};
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  std::vector<GroupKind> kinds;
  for (const int size : {1, 2, 3, 4, 7})
    kinds.push_back({fmt::format("in_process_{}", size), size, [size] { return make_in_process_group(size); }});
  const auto gpus = static_cast<int>(device::list_gpus().size());
  if (gpus > 0)
    for (const std::size_t size : {1, 2, 5})
      kinds.push_back(kind_on_gpus("in_gpu", std::vector(size, device::Device{device::DeviceKind::gpu, 0}), true));
  if (nccl_built_version() != "absent")
    for (int size = 2; size <= gpus; ++size) kinds.push_back(kind_on_gpus("nccl", gpus_in_turn(size), false));
  return kinds;
}

}  // namespace lockstep::allreduce
