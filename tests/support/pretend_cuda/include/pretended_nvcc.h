// What nvcc gives a kernel, for kernels that the host's compiler compiles: included before everything else in them.
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

// Blocks run one at a time on each thread of the host, so shared memory is the thread's own, and so is who is running.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local dim3 blockDim{};
inline constinit thread_local dim3 gridDim{};
inline constexpr int warpSize = 32;

inline void __syncthreads() { lockstep::pretend::meet_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) { lockstep::pretend::meet_warp(mask, 0); }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { __threadfence(); }

namespace lockstep::pretend {

template <typename T>
concept Shuffled = sizeof(T) <= sizeof(unsigned long long) && std::is_trivially_copyable_v<T>;

// The value of lane `source`, of the calling lane's part of the warp.
template <Shuffled T>
T shuffle(unsigned mask, T value, unsigned source) {
  unsigned long long bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const unsigned long long* values = meet_warp(mask, bits);
  if ((mask >> source & 1U) == 0) kernel_misused("takes the value of a lane that takes no part in the shuffle");
  std::memcpy(&value, &values[source], sizeof(T));
  return value;
}

}  // namespace lockstep::pretend

template <lockstep::pretend::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const unsigned first = lockstep::pretend::lane() & ~static_cast<unsigned>(width - 1);
  return lockstep::pretend::shuffle(mask, value, first + (static_cast<unsigned>(source) & (width - 1)));
}

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

template <lockstep::pretend::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = warpSize) {
  const unsigned lane = lockstep::pretend::lane();
  const bool is_inside = (lane & (width - 1)) >= distance;
  return lockstep::pretend::shuffle(mask, value, is_inside ? lane - distance : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned long long* values = lockstep::pretend::meet_warp(mask, predicate != 0 ? 1 : 0);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < lockstep::pretend::kWarpSize; ++lane)
    if ((mask >> lane & 1U) != 0 && values[lane] != 0) ballot |= 1U << lane;
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0 ? 1 : 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask ? 1 : 0; }

// Several streams may work on the same memory.
template <typename T>
requires std::integral<T> || std::floating_point<T> T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}

template <std::integral T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> reference(*address);
  T old = reference.load();
  while (old < value && !reference.compare_exchange_weak(old, value)) {
  }
  return old;
}

template <std::integral T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  std::atomic_ref<T> reference(*address);
  T old = reference.load();
  while (value < old && !reference.compare_exchange_weak(old, value)) {
  }
  return old;
}

template <std::integral T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;
}

template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value);
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}

inline float rsqrtf(float value) { return 1.0F / sqrtf(value); }
inline double rsqrt(double value) { return 1.0 / sqrt(value); }
inline float __expf(float value) { return expf(value); }
inline float __logf(float value) { return logf(value); }
inline float __fdividef(float dividend, float divisor) { return dividend / divisor; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frsqrt_rn(float value) { return rsqrtf(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline int __popc(unsigned value) { return std::popcount(value); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32U);
}

using std::max;
using std::min;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
