// Replaces the NCCL sources in builds without NCCL: throws an error that states what to install.
#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorCategory::input, "--allreduce", "expected a build with NCCL and a GPU for each replica",
      "this build has no NCCL: install it with the CUDA toolkit, then configure and build again");
}

}  // namespace

std::string nccl_built_version() { return "absent"; }
std::string nccl_loaded_version() { return "absent"; }

std::vector<std::shared_ptr<GroupMember>> make_nccl(
    const std::vector<std::shared_ptr<GroupMember>>& /*hosts*/,
    const std::vector<device::Device>& /*gpus*/, const Communicator& /*ranks*/,
    const NcclOptions& /*options*/) {
  refuse();
}

}  // namespace lockstep::inline v0::allreduce
