// A build without NCCL has no group of GPUs, and says what to do about it.
#include "lockstep/allreduce/algorithm/nccl.h"
#include "lockstep/base/error.h"

namespace lockstep::allreduce {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCategory::input, "--allreduce", "needed a build with NCCL and a GPU for each replica",
              "this one has no NCCL: install it beside the CUDA toolkit, configure and build again");
}

}  // namespace

std::string nccl_built_version() { return "absent"; }
std::string nccl_loaded_version() { return "absent"; }

std::vector<std::shared_ptr<GroupMember>> make_nccl(const std::vector<std::shared_ptr<GroupMember>>& /*hosts*/,
                                                    const std::vector<device::Device>& /*gpus*/, MPI_Comm /*ranks*/,
                                                    const NcclOptions& /*options*/) {
  refuse();
}

std::shared_ptr<GroupMember> make_nccl_hierarchical(const std::shared_ptr<MpiGroup>& /*host*/, device::Device /*gpu*/,
                                                    MPI_Comm /*ranks*/, MPI_Comm /*node*/,
                                                    const NcclOptions& /*options*/) {
  refuse();
}

}  // namespace lockstep::allreduce
