#include "lockstep/model/cuda/matrix_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model::cuda {
namespace {

constexpr std::uint64_t kMaxProductWorkspace =
    std::uint64_t{32} << 20;              // required by the fastest cuBLASLt algorithms on Hopper
constexpr std::uint32_t kAlignment = 16;  // bytes, of all arrays
constexpr int kMaxAlgorithms = 8;

template <typename Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
         const Value& value, const std::string& description) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), description);
}

template <typename Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value, const std::string& description) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        description);
}

// cuBLASLt is column-major, so it sees a row-major [rows, columns] as its transpose.
cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                              const std::string& description, std::int64_t stride = 0) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), std::max(columns, stride)),
        description);
  return made;
}

// Makes `made` the first of `count` matrices, one after the other.
void repeat(cublasLtMatrixLayout_t made, std::int64_t count, std::int64_t elements,
            const std::string& description) {
  const auto batch = static_cast<std::int32_t>(count);
  check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                         sizeof(batch)),
        description);
  check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &elements, sizeof(elements)),
        description);
}

cublasLtEpilogue_t epilogue(const ProductSpec& spec) {
  if (spec.bias) return spec.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return spec.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// Whether the status of cuBLASLt suggests another algorithm.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH ||
         status == CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace

MatrixProduct::MatrixProduct(Context& context, const ProductSpec& spec)
    : context_(context),
      spec_(spec),
      description_(fmt::format("{} products [{}, {}] x [{}, {}] in {}", spec.products, spec.rows,
                               spec.inner, spec.inner, spec.columns,
                               to_string(context.options().precision))) {
  const bool may_round =
      context.options().precision == Precision::float32 && context.options().tf32;
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(
            &operation, may_round ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        description_);
  operation_.reset(operation);
  // Both sides are transposed: result' = right' x left', where ' is cuBLASLt's view of a row-major
  // array.
  const cublasOperation_t right = spec.right_is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t left = spec.left_is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, right, description_);
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, left, description_);
  set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(spec), description_);

  const cudaDataType_t type = context.cuda_type();
  right_.reset(spec.right_is_transposed ? layout(type, spec.columns, spec.inner, description_)
                                        : layout(type, spec.inner, spec.columns, description_));
  left_.reset(spec.left_is_transposed
                  ? layout(type, spec.inner, spec.rows, description_, spec.left_stride)
                  : layout(type, spec.rows, spec.inner, description_, spec.left_stride));
  result_.reset(layout(spec.result_is_float32 ? CUDA_R_32F : type, spec.rows, spec.columns,
                       description_, spec.result_stride));
  if (spec.products > 1) {
    LOCKSTEP_CHECK_OP(spec.products, <=, std::numeric_limits<std::int32_t>::max());
    repeat(left_.get(), spec.products, spec.rows * spec.inner, description_);
    repeat(right_.get(), spec.products, spec.inner * spec.columns, description_);
    repeat(result_.get(), spec.products, spec.rows * spec.columns, description_);
  }
  choose();
}

void MatrixProduct::choose() {
  // The algorithm choice depends only on the alignment of the bias pointer, not on its value.
  if (spec_.bias)
    set(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        reinterpret_cast<const void*>(std::uintptr_t{kAlignment}), description_);
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), description_);
  const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxProductWorkspace, description_);
  for (const auto side :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(raw, side, kAlignment, description_);
  algorithms_.resize(kMaxAlgorithms);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      context_.cublas(), operation_.get(), right_.get(), left_.get(), result_.get(), result_.get(),
      raw, kMaxAlgorithms, algorithms_.data(), &count);
  algorithms_.resize(static_cast<std::size_t>(count));
  std::erase_if(algorithms_, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
  if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
      (status == CUBLAS_STATUS_SUCCESS && algorithms_.empty()))
    throw Error(ErrorCategory::device, "cublas", fmt::format("expected {}", description_),
                fmt::format("cuBLASLt {} has no algorithm for it", cublasLtGetVersion()));
  check(status, description_);
  for (const cublasLtMatmulHeuristicResult_t& one : algorithms_)
    workspace_bytes_ = std::max(workspace_bytes_, one.workspaceSize);
}

void MatrixProduct::run(const void* left, const void* right, const void* bias, void* workspace,
                        void* result, bool adds) {
  constexpr float kOne = 1;
  const float beta = adds ? 1 : 0;  // factor on the previous result
  if (spec_.bias) set(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, description_);
  const auto try_first = [&] {
    const cublasLtMatmulHeuristicResult_t& first = algorithms_.front();
    return cublasLtMatmul(context_.cublas(), operation_.get(), &kOne, right, right_.get(), left,
                          left_.get(), &beta, result, result_.get(), result, result_.get(),
                          &first.algo, workspace, first.workspaceSize, context_.native());
  };
  cublasStatus_t status = try_first();
  while (is_refusal(status) && algorithms_.size() > 1) {
    algorithms_.erase(algorithms_.begin());
    status = try_first();
  }
  check(status, description_);
}

}  // namespace lockstep::inline v0::model::cuda
