// Matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/cuda/context.h"

namespace lockstep::model::cuda {

/// A product of matrices of 2 dimensions, row-major in memory as all arrays of this project:
/// result [rows, columns] = left [rows, inner] x right [inner, columns], each of them possibly stored transposed.
struct ProductSpec {
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  std::int64_t columns = 0;
  bool left_is_transposed = false;   ///< left is stored as [inner, rows]
  bool right_is_transposed = false;  ///< right is stored as [columns, inner]
  bool result_is_float32 = false;    ///< else of the context's precision
  bool bias = false;                 ///< of the result's columns, and of its type
  bool relu = false;
};

/// One product with its algorithm, chosen once.
class MatrixProduct {
 public:
  /// Throws Error (device) where cuBLASLt has no algorithm.
  MatrixProduct(Context& context, const ProductSpec& spec);

  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// On the context's stream. `bias` where the spec has one; arrays are 16-byte aligned.
  void run(const void* left, const void* right, const void* bias, void* workspace, void* result);

 private:
  using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  void choose();

  Context& context_;
  ProductSpec spec_;
  std::string description_;
  Operation operation_;
  Layout left_;
  Layout right_;
  Layout result_;
  cublasLtMatmulAlgo_t algorithm_{};
  std::size_t workspace_bytes_ = 0;
};

}  // namespace lockstep::model::cuda
