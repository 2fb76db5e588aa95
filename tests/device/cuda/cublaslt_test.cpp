// The simulated cuBLASLt: the algorithms that it offers and the calls that it rejects, like the
// library. The tests of models compare its results with the CPU.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/elements.h"

namespace lockstep::inline v0::device::cuda {
namespace {

// Column-major.
struct Matrix {
  Matrix(cudaDataType type, std::uint64_t rows, std::uint64_t columns, std::uint64_t leading)
      : memory(leading * columns * pretend::width_of(type)) {
    std::ranges::fill(memory.span(), std::byte{0});
    cublasLtMatrixLayoutCreate(&layout, type, rows, columns, static_cast<std::int64_t>(leading));
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  Elements<std::byte> memory;
  cublasLtMatrixLayout_t layout = nullptr;
};

struct Types {
  cudaDataType in = CUDA_R_32F;
  cudaDataType out = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
};

// A [5, 7] times B [7, 3]
class Product {
 public:
  explicit Product(const Types& types, std::uint64_t leading_of_a = 8)
      : a(types.in, 5, 7, leading_of_a),
        b(types.in, 7, 3, 9),
        c(types.out, 5, 3, 6),
        d(types.out, 5, 3, 5),
        bias(types.out, 8, 1, 8) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&how, types.compute, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
  }
  ~Product() {
    cudaStreamSynchronize(stream.get());
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t name, T value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(how, name, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  template <typename T>
  void prefer(cublasLtMatmulPreferenceAttributes_t name, T value) {
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }
  void finish_with(cublasLtEpilogue_t epilogue) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(bias.memory.get()));
  }
  cublasStatus_t ask(int most = 4) {
    return cublasLtMatmulAlgoGetHeuristic(handle, how, a.layout, b.layout, c.layout, d.layout,
                                          preference, most, found.data(), &count);
  }
  cublasStatus_t multiply(const void* from, const cublasLtMatmulAlgo_t* algorithm = nullptr,
                          void* workspace = nullptr, std::size_t bytes = 0) const {
    const float alpha = 2;
    const float beta = 3;
    return cublasLtMatmul(handle, how, &alpha, from, a.layout, b.memory.get(), b.layout, &beta,
                          c.memory.get(), c.layout, d.memory.get(), d.layout, algorithm, workspace,
                          bytes, stream.get());
  }

  Matrix a;
  Matrix b;
  Matrix c;
  Matrix d;
  Matrix bias;
  StreamHandle stream = make_stream();
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t how = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 4> found{};
  int count = 0;
};

TEST(CublasLt, OffersAlgorithmsThatFitTheWorkspaceAndTheAlignment) {
  Product product({CUDA_R_16BF, CUDA_R_16BF});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(product.count, 1);
  EXPECT_EQ(product.found[0].workspaceSize, 0U);
  product.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
  ASSERT_EQ(product.ask(1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.count, 1);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(product.count, 2);

  const std::size_t bytes = product.found[0].workspaceSize;
  ASSERT_GT(bytes, 0U);
  const Elements<std::byte> space(bytes);
  const Elements<std::byte> longer(1000);
  const cublasLtMatmulAlgo_t* algorithm = &product.found[0].algo;
  const void* const a = product.a.memory.get();
  EXPECT_EQ(product.multiply(a, algorithm, space.get(), bytes), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.multiply(a, algorithm, space.get(), bytes - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product.multiply(a, algorithm, space.get() + 16, bytes), CUBLAS_STATUS_INVALID_VALUE);
  // The heuristic assumed the default alignment of 256 bytes.
  EXPECT_EQ(product.multiply(longer.get() + 16, algorithm, space.get(), bytes),
            CUBLAS_STATUS_INVALID_VALUE);
  product.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{16});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.multiply(longer.get() + 16, algorithm, space.get(), bytes),
            CUBLAS_STATUS_SUCCESS);
  // An algorithm is valid only for the requested problem.
  product.finish_with(CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(product.multiply(a, algorithm, space.get(), bytes), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLt, RejectsInvalidProblems) {
  const auto answer_to = [](const Types& types) { return Product(types).ask(); };
  EXPECT_EQ(answer_to({CUDA_R_32F, CUDA_R_16F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(answer_to({CUDA_R_16F, CUDA_R_16BF}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(answer_to({CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32}),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(answer_to({CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F_FAST_TF32}),
            CUBLAS_STATUS_NOT_SUPPORTED);

  Product product({CUDA_R_16BF, CUDA_R_16BF});
  EXPECT_EQ(product.ask(0), CUBLAS_STATUS_INVALID_VALUE);
  product.finish_with(CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr));
  EXPECT_EQ(product.multiply(product.a.memory.get()), CUBLAS_STATUS_INVALID_VALUE);
  product.finish_with(CUBLASLT_EPILOGUE_GELU);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_NOT_SUPPORTED);

  EXPECT_EQ(Product({}, 4).ask(), CUBLAS_STATUS_INVALID_VALUE);
  Product unlike({});
  unlike.set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(CUBLAS_OP_T));
  EXPECT_EQ(unlike.ask(), CUBLAS_STATUS_INVALID_VALUE);
  const std::int64_t wide = 0;
  EXPECT_EQ(
      cublasLtMatmulDescSetAttribute(unlike.how, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof(wide)),
      CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace lockstep::inline v0::device::cuda
