// The GPU layer of a build without CUDA: no GPU is available.
#include "lockstep/base/error.h"

#include <fmt/format.h>
#include "lockstep/device/gpu.h"
#include "lockstep/device/stream_impl.h"

namespace lockstep::inline v0::device {
namespace {

[[noreturn]] void refuse(int index) {
  throw Error(ErrorCategory::device, "gpu", fmt::format("expected gpu:{}", index),
              gpu_unavailable_reason());
}

}  // namespace

bool gpu_is_available() noexcept { return false; }

std::string gpu_unavailable_reason() {
  return "this build has no CUDA layer: install the CUDA toolkit and configure with "
         "-DLOCKSTEP_CUDA=ON";
}

std::vector<GpuInfo> list_gpus() { return {}; }
std::size_t gpu_free_bytes(int index) { refuse(index); }
std::string cuda_built_version() { return "absent"; }
std::string cuda_loaded_version() { return "absent"; }
std::unique_ptr<Allocator> make_gpu_allocator(int index) { refuse(index); }
std::unique_ptr<Allocator> make_pinned_allocator() { refuse(0); }
std::unique_ptr<StreamImpl> make_gpu_stream(int index) { refuse(index); }

}  // namespace lockstep::inline v0::device
