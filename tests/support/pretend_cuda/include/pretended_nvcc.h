// The environment of nvcc for kernels that the host's compiler compiles. Included before everything
// else.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>

#include "tests/support/pretend_cuda/grid.h"

// The names are CUDA's. NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)

// A host thread runs one block at a time, so shared memory and the current thread are thread-local.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local dim3 blockDim{};
inline constinit thread_local dim3 gridDim{};
inline constexpr int warpSize = 32;

inline void __syncthreads() { lockstep::pretend::sync_block(); }
namespace lockstep::inline v0::pretend {

template <typename T>
concept Shuffled = sizeof(T) <= sizeof(unsigned long long) && std::is_trivially_copyable_v<T>;

// The value of lane `source` in the calling lane's part of the warp.
template <Shuffled T>
T shuffle(unsigned mask, T value, unsigned source) {
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const unsigned long long* values = exchange_warp(mask, bits);
  if ((mask >> source & 1U) == 0)
    kernel_misused("takes the value of a lane that takes no part in the shuffle");
  std::memcpy(&value, &values[source], sizeof(T));
  return value;
}

}  // namespace lockstep::inline v0::pretend

template <lockstep::pretend::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int difference, int width = warpSize) {
  const unsigned lane = lockstep::pretend::lane();
  const unsigned source = lane ^ static_cast<unsigned>(difference);
  const unsigned end = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return lockstep::pretend::shuffle(mask, value, source < end ? source : lane);
}

template <lockstep::pretend::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = warpSize) {
  const unsigned lane = lockstep::pretend::lane();
  const bool is_inside = (lane & (width - 1)) + distance < static_cast<unsigned>(width);
  return lockstep::pretend::shuffle(mask, value, is_inside ? lane + distance : lane);
}

inline void __syncwarp(unsigned mask = 0xffffffffU) { lockstep::pretend::exchange_warp(mask, 0); }

inline void __stwb(uint4* to, uint4 value) { *to = value; }
inline void __stcs(uint4* to, uint4 value) { *to = value; }
inline uint4 __ldcs(const uint4* from) { return *from; }

// Several streams may work on the same memory.
template <std::integral T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> reference(*address);
  T old = reference.load();
  while (old < value && !reference.compare_exchange_weak(old, value)) {
  }
  return old;
}

using std::max;
using std::min;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
