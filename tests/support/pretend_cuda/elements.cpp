#include "tests/support/pretend_cuda/elements.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <cstdint>

#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/memory.h"

namespace lockstep::inline v0::pretend {

std::size_t width_of(cudaDataType type) {
  if (type == CUDA_R_32F) return 4;
  return type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

float load(cudaDataType type, const void* array, std::ptrdiff_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(array)[index];
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(array)[index]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(array)[index]);
}

std::vector<float> load_all(cudaDataType type, const void* array, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = load(type, array, static_cast<std::ptrdiff_t>(i));
  return values;
}

void store(cudaDataType type, void* array, std::ptrdiff_t index, float value) {
  if (type == CUDA_R_32F)
    static_cast<float*>(array)[index] = value;
  else if (type == CUDA_R_16F)
    static_cast<__half*>(array)[index] = __float2half_rn(value);
  else
    static_cast<__nv_bfloat16*>(array)[index] = __float2bfloat16_rn(value);
}

void check_is_on_gpu(const char* who, const void* data, std::size_t bytes) {
  if (!is_on_gpu(data, bytes))
    usage_error(fmt::format("{} was given {}, which is not on a GPU", who, fmt::ptr(data)));
}

bool is_aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

}  // namespace lockstep::inline v0::pretend
