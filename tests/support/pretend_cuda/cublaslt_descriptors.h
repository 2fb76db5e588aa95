// Contents of the descriptors of the simulated cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

struct cublasLtContext {
  int device = 0;
};

namespace lockstep::inline v0::pretend {

/// Columns are contiguous.
struct Layout : cublasLtMatrixLayoutOpaque_t {
  cudaDataType type = CUDA_R_32F;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading = 0;
  std::int32_t batch = 1;
  std::int64_t batch_offset = 0;  ///< elements from one matrix of the batch to the next

  std::ptrdiff_t place(std::size_t row, std::size_t column) const;  ///< offset of an element
  std::size_t bytes() const;
  /// Whether the type is known, the size not 0, and the leading dimension large enough.
  bool is_possible() const;
};

struct MatmulDescription : cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  ///< in the type of D
};

struct Preference : cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t alignment_a = 256;
  std::uint32_t alignment_b = 256;
  std::uint32_t alignment_c = 256;
  std::uint32_t alignment_d = 256;
};

Layout& layout(cublasLtMatrixLayout_t handle);
MatmulDescription& description(cublasLtMatmulDesc_t handle);
Preference& preference(cublasLtMatmulPreference_t handle);

}  // namespace lockstep::inline v0::pretend
