// Replaces gpu_work.cpp in builds without CUDA. There are no GPU replicas, so only holds() is
// called.
#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce::gpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCategory::device, "gpu", "expected a GPU to reduce on",
              device::gpu_unavailable_reason());
}

}  // namespace

bool holds(const void* /*memory*/) { return false; }

void copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/, device::Stream& /*stream*/) {
  refuse();
}

void fill_with_zeros(void* /*memory*/, std::size_t /*bytes*/, device::Stream& /*stream*/) {
  refuse();
}

void reduce_slice(std::span<const std::byte* const> /*members*/,
                  std::span<std::byte* const> /*results*/, Slice /*slice*/, ElementType /*type*/,
                  ReduceOp /*op*/, device::Stream& /*stream*/) {
  refuse();
}

void find_largest(std::span<const float> /*values*/, float* /*largest*/,
                  device::Stream& /*stream*/) {
  refuse();
}

void narrow(std::span<const float> /*from*/, void* /*to*/, ElementType /*type*/,
            const WireScale& /*scale*/, device::Stream& /*stream*/) {
  refuse();
}

void widen(const void* /*from*/, std::span<float> /*to*/, ElementType /*type*/,
           const WireScale& /*scale*/, device::Stream& /*stream*/) {
  refuse();
}

}  // namespace lockstep::inline v0::allreduce::gpu
