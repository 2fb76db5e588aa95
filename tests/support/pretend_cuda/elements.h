// Elements of the types that libraries compute with, as floats.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <vector>

namespace lockstep::inline v0::pretend {

/// Bytes of an element of R_32F, R_16F or R_16BF; 0 for other types.
std::size_t width_of(cudaDataType type);

/// Element `index` of an array of `type`.
float load(cudaDataType type, const void* array, std::ptrdiff_t index);
std::vector<float> load_all(cudaDataType type, const void* array, std::size_t count);
void store(cudaDataType type, void* array, std::ptrdiff_t index, float value);

/// Ends the program unless [data, data + bytes) is inside memory of a GPU; `who` names the library.
void check_is_on_gpu(const char* who, const void* data, std::size_t bytes);

/// Whether `data` is a multiple of `alignment` bytes.
bool is_aligned(const void* data, std::size_t alignment);

}  // namespace lockstep::inline v0::pretend
