// The pretended cuBLASLt: products equal to sums written out, and refusals like the library's.
#include <cublasLt.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "tests/device/cuda/handles.h"
#include "tests/support/pretend_cuda/elements.h"

namespace lockstep::device::cuda {
namespace {

// Column-major, of small integers.
struct Matrix {
  Matrix(cudaDataType its_type, std::size_t its_rows, std::size_t its_columns, std::size_t its_leading, unsigned seed)
      : type(its_type),
        rows(its_rows),
        columns(its_columns),
        leading(its_leading),
        memory(leading * columns * pretend::width_of(type)) {
    std::minstd_rand dice(seed);
    for (std::size_t i = 0; i < leading * columns; ++i)
      pretend::store(type, memory.get(), static_cast<std::ptrdiff_t>(i),
                     static_cast<float>(static_cast<int>(dice() % 5) - 2));
    cublasLtMatrixLayoutCreate(&layout, type, rows, columns, static_cast<std::int64_t>(leading));
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  float at(std::size_t row, std::size_t column, bool transposed = false) const {
    if (transposed) std::swap(row, column);
    return pretend::load(type, memory.get(), static_cast<std::ptrdiff_t>(column * leading + row));
  }
  void* data() const { return memory.get(); }

  cudaDataType type;
  std::size_t rows;
  std::size_t columns;
  std::size_t leading;
  Elements<std::byte> memory;
  cublasLtMatrixLayout_t layout = nullptr;
};

struct Types {
  cudaDataType in = CUDA_R_32F;
  cudaDataType out = CUDA_R_32F;
};

// op(A) [5, 7] op(B) [7, 3]
class Product {
 public:
  Product(Types types, bool transposes_a, bool transposes_b, cublasComputeType_t compute = CUBLAS_COMPUTE_32F)
      : transposed_a(transposes_a),
        transposed_b(transposes_b),
        a(types.in, transposes_a ? 7 : 5, transposes_a ? 5 : 7, 8, 1),
        b(types.in, transposes_b ? 3 : 7, transposes_b ? 7 : 3, 9, 2),
        c(types.out, 5, 3, 6, 3),
        d(types.out, 5, 3, 5, 4),
        vector(types.out, 8, 1, 8, 5) {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&how, compute, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&preference);
    set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N));
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
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(how, name, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  }
  template <typename T>
  void prefer(cublasLtMatmulPreferenceAttributes_t name, T value) {
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)), CUBLAS_STATUS_SUCCESS);
  }
  void finish_with(cublasLtEpilogue_t epilogue) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(epilogue));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector.data());
  }
  cublasStatus_t ask(int most = 4) {
    return cublasLtMatmulAlgoGetHeuristic(handle, how, a.layout, b.layout, c.layout, d.layout, preference, most,
                                          found.data(), &count);
  }
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t* algorithm = nullptr, void* workspace = nullptr,
                          std::size_t bytes = 0, const void* from = nullptr) {
    const float alpha = 2;
    const float beta = 3;
    return cublasLtMatmul(handle, how, &alpha, from == nullptr ? a.data() : from, a.layout, b.data(), b.layout, &beta,
                          c.data(), c.layout, d.data(), d.layout, algorithm, workspace, bytes, stream.get());
  }
  float sum(std::size_t row, std::size_t column) const {
    float sum = 0;
    for (std::size_t k = 0; k < 7; ++k) sum += a.at(row, k, transposed_a) * b.at(k, column, transposed_b);
    return 2 * sum + 3 * c.at(row, column);
  }

  bool transposed_a;
  bool transposed_b;
  Matrix a;
  Matrix b;
  Matrix c;
  Matrix d;
  Matrix vector;
  StreamHandle stream = make_stream();
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t how = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 4> found{};
  int count = 0;
};

constexpr Types kAllTypes[] = {{CUDA_R_32F, CUDA_R_32F},
                               {CUDA_R_16F, CUDA_R_16F},
                               {CUDA_R_16BF, CUDA_R_16BF},
                               {CUDA_R_16F, CUDA_R_32F},
                               {CUDA_R_16BF, CUDA_R_32F}};

TEST(CublasLt, MultipliesMatricesOfEveryType) {
  for (const Types& types : kAllTypes)
    for (const bool transposes_a : {false, true})
      for (const bool transposes_b : {false, true}) {
        Product product(types, transposes_a, transposes_b);
        ASSERT_EQ(product.multiply(), CUBLAS_STATUS_SUCCESS);
        synchronize(product.stream);
        for (std::size_t row = 0; row < 5; ++row)
          for (std::size_t column = 0; column < 3; ++column)
            ASSERT_EQ(product.d.at(row, column), product.sum(row, column))
                << "types " << types.in << ", " << types.out << ", transposed " << transposes_a << transposes_b;
      }
}

TEST(CublasLt, AddsABiasToEachColumnAndClips) {
  for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS}) {
    Product product({CUDA_R_16BF, CUDA_R_16BF}, true, false);
    product.finish_with(epilogue);
    ASSERT_EQ(product.multiply(), CUBLAS_STATUS_SUCCESS);
    synchronize(product.stream);
    for (std::size_t row = 0; row < 5; ++row)
      for (std::size_t column = 0; column < 3; ++column) {
        float expected = product.sum(row, column);
        if (epilogue != CUBLASLT_EPILOGUE_RELU) expected += product.vector.at(row, 0);
        if (epilogue != CUBLASLT_EPILOGUE_BIAS) expected = std::max(expected, 0.0F);
        ASSERT_EQ(product.d.at(row, column), expected) << epilogue;
      }
  }
}

TEST(CublasLt, SumsAnOperandOverTheDepth) {
  for (const bool transposes : {false, true}) {
    Product of_a({}, transposes, transposes);
    of_a.finish_with(CUBLASLT_EPILOGUE_BGRADA);
    ASSERT_EQ(of_a.multiply(), CUBLAS_STATUS_SUCCESS);
    Product of_b({}, transposes, transposes);
    of_b.finish_with(CUBLASLT_EPILOGUE_BGRADB);
    std::vector<float> before;
    for (std::size_t i = 0; i < 5; ++i) before.push_back(of_b.vector.at(i, 0));
    ASSERT_EQ(of_b.multiply(), CUBLAS_STATUS_SUCCESS);
    synchronize(of_a.stream);
    synchronize(of_b.stream);
    EXPECT_EQ(of_a.d.at(2, 1), of_a.sum(2, 1));
    for (std::size_t i = 0; i < 5; ++i) {
      float sum_a = 0;
      float sum_b = 0;
      for (std::size_t k = 0; k < 7; ++k) {
        sum_a += of_a.a.at(i, k, transposes);
        if (i < 3) sum_b += of_b.b.at(k, i, transposes);
      }
      EXPECT_EQ(of_a.vector.at(i, 0), sum_a);
      EXPECT_EQ(of_b.vector.at(i, 0), i < 3 ? sum_b : before[i]);
    }
  }
}

TEST(CublasLt, MultipliesBatches) {
  Product product({}, false, false);
  const std::int32_t batches = 2;
  const std::int64_t same = 0;
  const std::int64_t next = 15;
  const Elements<float> d(30);
  for (const cublasLtMatrixLayout_t layout : {product.a.layout, product.b.layout, product.c.layout, product.d.layout}) {
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof(batches));
    const std::int64_t* stride = layout == product.d.layout ? &next : &same;
    cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, sizeof(*stride));
  }
  const float alpha = 2;
  const float beta = 3;
  ASSERT_EQ(cublasLtMatmul(product.handle, product.how, &alpha, product.a.data(), product.a.layout, product.b.data(),
                           product.b.layout, &beta, product.c.data(), product.c.layout, d.get(), product.d.layout,
                           nullptr, nullptr, 0, product.stream.get()),
            CUBLAS_STATUS_SUCCESS);
  synchronize(product.stream);
  EXPECT_EQ(d[1 * 5 + 2], product.sum(2, 1));
  EXPECT_EQ(d[15 + 1 * 5 + 2], product.sum(2, 1));
}

TEST(CublasLt, OffersAlgorithmsThatFitTheWorkspaceAndTheAlignment) {
  Product product({CUDA_R_16BF, CUDA_R_16BF}, true, false);
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
  const Elements<std::byte> workspace(bytes);
  const cublasLtMatmulAlgo_t* algorithm = &product.found[0].algo;
  EXPECT_EQ(product.multiply(algorithm, workspace.get(), bytes), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.multiply(algorithm, workspace.get(), bytes - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product.multiply(algorithm, workspace.get() + 16, bytes), CUBLAS_STATUS_INVALID_VALUE);
  // The heuristic assumed the default alignment of 256 bytes.
  const Elements<std::byte> longer(1000);
  EXPECT_EQ(product.multiply(algorithm, workspace.get(), bytes, longer.get() + 16), CUBLAS_STATUS_INVALID_VALUE);
  product.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{16});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.multiply(algorithm, workspace.get(), bytes, longer.get() + 16), CUBLAS_STATUS_SUCCESS);
  // An algorithm is valid only for the requested problem.
  product.finish_with(CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(product.multiply(algorithm, workspace.get(), bytes), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLt, RefusesWhatTheLibraryRefuses) {
  const auto answer_to = [](Types types, cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    return Product(types, false, false, compute).ask();
  };
  EXPECT_EQ(answer_to({CUDA_R_32F, CUDA_R_16F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(answer_to({CUDA_R_16F, CUDA_R_16BF}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(answer_to({}, CUBLAS_COMPUTE_32F_FAST_TF32), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(answer_to({CUDA_R_16F, CUDA_R_16F}, CUBLAS_COMPUTE_32F_FAST_TF32), CUBLAS_STATUS_NOT_SUPPORTED);

  Product product({CUDA_R_16BF, CUDA_R_16BF}, false, false);
  EXPECT_EQ(product.ask(0), CUBLAS_STATUS_INVALID_VALUE);
  product.finish_with(CUBLASLT_EPILOGUE_BIAS);
  product.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(CUDA_R_32F));
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  product.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(CUDA_R_16BF));
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr));
  EXPECT_EQ(product.multiply(), CUBLAS_STATUS_INVALID_VALUE);
  product.finish_with(CUBLASLT_EPILOGUE_GELU);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_NOT_SUPPORTED);

  Product wrong({}, false, false);
  const std::int64_t short_leading = 4;
  cublasLtMatrixLayoutSetAttribute(wrong.a.layout, CUBLASLT_MATRIX_LAYOUT_LD, &short_leading, sizeof(short_leading));
  EXPECT_EQ(wrong.ask(), CUBLAS_STATUS_INVALID_VALUE);
  Product unlike({}, false, false);
  unlike.set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(CUBLAS_OP_T));
  EXPECT_EQ(unlike.ask(), CUBLAS_STATUS_INVALID_VALUE);
  const std::int64_t wide = 0;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(unlike.how, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof(wide)),
            CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace lockstep::device::cuda
