// Matrix products of the simulated cuBLASLt, with two algorithms; the first one requires a
// workspace.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/support/pretend_cuda/cublaslt_descriptors.h"
#include "tests/support/pretend_cuda/elements.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/streams.h"

namespace {

namespace pretend = lockstep::pretend;
using pretend::Layout;
using pretend::MatmulDescription;

constexpr std::size_t kWorkspace = 4096;
constexpr std::size_t kWorkspaceAlignment = 256;

// A copy of the arguments of a call: descriptors may change after it has returned.
struct Product {
  MatmulDescription how;
  Layout a;
  Layout b;
  Layout c;
  Layout d;

  bool transposes_a() const { return how.transpose_a != CUBLAS_OP_N; }
  bool transposes_b() const { return how.transpose_b != CUBLAS_OP_N; }
  std::size_t rows() const { return transposes_a() ? a.columns : a.rows; }
  std::size_t columns() const { return transposes_b() ? b.rows : b.columns; }
  std::size_t depth() const { return transposes_a() ? a.rows : a.columns; }
  std::size_t depth_of_b() const { return transposes_b() ? b.columns : b.rows; }

  bool has(cublasLtEpilogue_t epilogue) const { return how.epilogue == epilogue; }
  bool adds_bias() const { return has(CUBLASLT_EPILOGUE_BIAS) || has(CUBLASLT_EPILOGUE_RELU_BIAS); }
  bool clips() const { return has(CUBLASLT_EPILOGUE_RELU) || has(CUBLASLT_EPILOGUE_RELU_BIAS); }
};

Product product_of(cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {pretend::description(how), pretend::layout(a), pretend::layout(b), pretend::layout(c),
          pretend::layout(d)};
}

bool is_transposition(std::int32_t value) { return value == CUBLAS_OP_N || value == CUBLAS_OP_T; }

// Whether cuBLASLt has kernels for this combination of types.
bool has_kernels(const Product& p) {
  const bool is_tf32 = p.how.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((p.how.compute != CUBLAS_COMPUTE_32F && !is_tf32) || p.how.scale != CUDA_R_32F) return false;
  if (p.a.type != p.b.type || p.c.type != p.d.type) return false;
  if (is_tf32 && p.a.type != CUDA_R_32F) return false;
  return p.d.type == p.a.type || p.d.type == CUDA_R_32F;
}

cublasStatus_t check(const Product& p) {
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d})
    if (!layout->is_possible()) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_transposition(p.how.transpose_a) || !is_transposition(p.how.transpose_b))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.depth() != p.depth_of_b() || p.d.rows != p.rows() || p.d.columns != p.columns() ||
      p.c.rows != p.d.rows || p.c.columns != p.d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const Layout* layout : {&p.a, &p.b, &p.c})
    if (layout->batch != p.d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  if (!has_kernels(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool is_known = p.has(CUBLASLT_EPILOGUE_DEFAULT) || p.adds_bias() || p.clips();
  return is_known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// The content of cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t mark = 0;  // identifies algorithms from the heuristic
  std::uint64_t workspace = 0;
  std::uint64_t alignment_a = 0;
  std::uint64_t alignment_b = 0;
  std::uint64_t alignment_c = 0;
  std::uint64_t alignment_d = 0;
  std::uint64_t product = 0;
  std::uint64_t unused = 0;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t kMark = 0x6c6f636b73746570;

// Identifies the product that the heuristic was queried for.
std::uint64_t key_of(const Product& p) {
  std::uint64_t key = 14695981039346656037U;
  const auto mix = [&](std::uint64_t value) { key = (key ^ value) * 1099511628211U; };
  for (const Layout* layout : {&p.a, &p.b, &p.c, &p.d})
    for (const std::uint64_t value :
         {static_cast<std::uint64_t>(layout->type), layout->rows, layout->columns,
          static_cast<std::uint64_t>(layout->leading), static_cast<std::uint64_t>(layout->batch),
          static_cast<std::uint64_t>(layout->batch_offset)})
      mix(value);
  for (const std::int32_t value :
       {p.how.transpose_a, p.how.transpose_b, static_cast<std::int32_t>(p.how.compute)})
    mix(static_cast<std::uint64_t>(value));
  mix(p.how.epilogue);
  return key;
}

std::vector<float> load(const Layout& layout, const void* data, bool transposes) {
  // Column-major; of the transposed matrix on request.
  std::vector<float> values;
  values.reserve(layout.rows * layout.columns);
  const std::size_t slow = transposes ? layout.rows : layout.columns;
  const std::size_t fast = transposes ? layout.columns : layout.rows;
  for (std::size_t i = 0; i < slow; ++i)
    for (std::size_t j = 0; j < fast; ++j)
      values.push_back(
          pretend::load(layout.type, data, transposes ? layout.place(i, j) : layout.place(j, i)));
  return values;
}

struct Operands {
  const void* a;
  const void* b;
  const void* c;
  void* d;
};

void multiply(const Product& p, const Operands& operands, float alpha, float beta) {
  const std::vector<float> a = load(p.a, operands.a, p.transposes_a());
  const std::vector<float> b = load(p.b, operands.b, p.transposes_b());
  const std::vector<float> c = beta == 0 ? std::vector<float>() : load(p.c, operands.c, false);
  std::vector<float> sums(p.rows());
  for (std::size_t column = 0; column < p.columns(); ++column) {
    std::ranges::fill(sums, 0.0F);
    for (std::size_t k = 0; k < p.depth(); ++k)
      for (std::size_t row = 0; row < sums.size(); ++row)
        sums[row] += a[k * sums.size() + row] * b[column * p.depth() + k];
    for (std::size_t row = 0; row < sums.size(); ++row) {
      float value = alpha * sums[row] + (beta == 0 ? 0.0F : beta * c[column * sums.size() + row]);
      if (p.adds_bias())
        value += pretend::load(p.d.type, p.how.bias, static_cast<std::ptrdiff_t>(row));
      if (p.clips()) value = value < 0 ? 0 : value;  // a NaN stays one
      pretend::store(p.d.type, operands.d, p.d.place(row, column), value);
    }
  }
}

// Whether pointers have the alignment that the algorithm assumes, or that all kernels require.
bool are_aligned(const Product& p, const Operands& operands, const Algorithm& algorithm) {
  const std::size_t in = pretend::width_of(p.a.type);
  const std::size_t out = pretend::width_of(p.d.type);
  const auto fits = [](const void* data, std::uint64_t told, std::size_t width) {
    return pretend::is_aligned(data, std::max<std::size_t>(told, width));
  };
  return fits(operands.a, algorithm.alignment_a, in) &&
         fits(operands.b, algorithm.alignment_b, in) &&
         fits(operands.c, algorithm.alignment_c, out) &&
         fits(operands.d, algorithm.alignment_d, out);
}

cublasStatus_t check_operands(const Product& p, const Operands& operands, bool reads_c) {
  if (operands.a == nullptr || operands.b == nullptr || operands.d == nullptr ||
      (reads_c && operands.c == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (operands.c == operands.d && p.c.leading != p.d.leading)
    return CUBLAS_STATUS_INVALID_VALUE;  // in place, but with another layout
  pretend::check_is_on_gpu("cuBLASLt", operands.a, p.a.bytes());
  pretend::check_is_on_gpu("cuBLASLt", operands.b, p.b.bytes());
  if (reads_c) pretend::check_is_on_gpu("cuBLASLt", operands.c, p.c.bytes());
  pretend::check_is_on_gpu("cuBLASLt", operands.d, p.d.bytes());
  if (!p.adds_bias()) return CUBLAS_STATUS_SUCCESS;
  const std::size_t width = pretend::width_of(p.d.type);
  if (p.how.bias == nullptr || !pretend::is_aligned(p.how.bias, width))
    return CUBLAS_STATUS_INVALID_VALUE;
  pretend::check_is_on_gpu("cuBLASLt", p.how.bias, p.rows() * width);
  return CUBLAS_STATUS_SUCCESS;
}

Algorithm algorithm_of(const cublasLtMatmulAlgo_t* requested, const Product& p) {
  return requested == nullptr ? Algorithm{.mark = kMark, .product = key_of(p)}
                              : std::bit_cast<Algorithm>(*requested);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  *count = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product product = product_of(how, a, b, c, d);
  if (const cublasStatus_t status = check(product); status != CUBLAS_STATUS_SUCCESS) return status;
  const pretend::Preference& wish = pretend::preference(preference);
  for (const std::uint64_t workspace : {std::uint64_t{kWorkspace}, std::uint64_t{0}}) {
    if (*count == most || workspace > wish.workspace) continue;
    const Algorithm algorithm = {.mark = kMark,
                                 .workspace = workspace,
                                 .alignment_a = wish.alignment_a,
                                 .alignment_b = wish.alignment_b,
                                 .alignment_c = wish.alignment_c,
                                 .alignment_d = wish.alignment_d,
                                 .product = key_of(product)};
    cublasLtMatmulHeuristicResult_t result{};
    result.algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    result.workspaceSize = workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1;
    found[(*count)++] = result;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* requested, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Product product = product_of(how, a_layout, b_layout, c_layout, d_layout);
  if (const cublasStatus_t status = check(product); status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm algorithm = algorithm_of(requested, product);
  if (algorithm.mark != kMark || algorithm.product != key_of(product))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes < algorithm.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm.workspace > 0 && !pretend::machine().runs_first_products)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm.workspace > 0) {
    if (!pretend::is_aligned(workspace, kWorkspaceAlignment)) return CUBLAS_STATUS_INVALID_VALUE;
    pretend::check_is_on_gpu("cuBLASLt", workspace, algorithm.workspace);
  }
  const float scale = *static_cast<const float*>(alpha);
  const float keep = *static_cast<const float*>(beta);
  const Operands operands = {a, b, c, d};
  if (!are_aligned(product, operands, algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = check_operands(product, operands, keep != 0);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (pretend::device_of(stream) != handle->device) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t status = pretend::enqueue(stream, [=] {
    if (algorithm.workspace > 0) std::memset(workspace, 0xff, algorithm.workspace);
    for (std::int32_t index = 0; index < product.d.batch; ++index) {
      const auto at = [&](const Layout& layout, const void* data) {
        return static_cast<const char*>(data) +
               index * layout.batch_offset *
                   static_cast<std::int64_t>(pretend::width_of(layout.type));
      };
      multiply(product,
               {at(product.a, operands.a), at(product.b, operands.b), at(product.c, operands.c),
                const_cast<char*>(at(product.d, operands.d))},
               scale, keep);
    }
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
