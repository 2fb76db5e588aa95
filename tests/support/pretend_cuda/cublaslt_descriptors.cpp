#include "tests/support/pretend_cuda/cublaslt_descriptors.h"

#include <algorithm>
#include <cstring>

#include "tests/support/pretend_cuda/elements.h"
#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::pretend {
namespace {

// An attribute has exactly the size of what holds it here.
template <typename T>
cublasStatus_t set(T& attribute, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set(MatmulDescription& matmul, cublasLtMatmulDescAttributes_t name,
                   const void* value, std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(matmul.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(matmul.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(matmul.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(matmul.bias, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t set(Layout& layout, cublasLtMatrixLayoutAttribute_t name, const void* value,
                   std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout.batch_offset, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t set(Preference& preference, cublasLtMatmulPreferenceAttributes_t name,
                   const void* value, std::size_t bytes) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(preference.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(preference.alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(preference.alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(preference.alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference.alignment_d, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

}  // namespace

std::ptrdiff_t Layout::place(std::size_t row, std::size_t column) const {
  return static_cast<std::ptrdiff_t>(column) * leading + static_cast<std::ptrdiff_t>(row);
}

std::size_t Layout::bytes() const {
  return static_cast<std::size_t>((batch - 1) * batch_offset + place(rows - 1, columns - 1) + 1) *
         width_of(type);
}

bool Layout::is_possible() const {
  return width_of(type) > 0 && rows > 0 && columns > 0 && batch > 0 &&
         leading >= static_cast<std::int64_t>(rows);
}

Layout& layout(cublasLtMatrixLayout_t handle) { return *static_cast<Layout*>(handle); }
MatmulDescription& description(cublasLtMatmulDesc_t handle) {
  return *static_cast<MatmulDescription*>(handle);
}
Preference& preference(cublasLtMatmulPreference_t handle) {
  return *static_cast<Preference*>(handle);
}

}  // namespace lockstep::inline v0::pretend

namespace pretend = lockstep::pretend;

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (pretend::readiness() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{.device = pretend::current_gpu()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  auto* layout = new pretend::Layout;
  layout->type = type;
  layout->rows = rows;
  layout->columns = columns;
  layout->leading = leading;
  *handle = layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  return pretend::set(pretend::layout(handle), name, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete &pretend::layout(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  auto* matmul = new pretend::MatmulDescription;
  matmul->compute = compute;
  matmul->scale = scale;
  *handle = matmul;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete &pretend::description(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  return pretend::set(pretend::description(handle), name, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = new pretend::Preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete &pretend::preference(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  return pretend::set(pretend::preference(handle), name, value, bytes);
}

}  // extern "C"
