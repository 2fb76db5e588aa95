// Matrix products with cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/model/cuda/context.h"

namespace lockstep::inline v0::model::cuda {

/// A product of two matrices, row-major as all arrays of this project: result [rows, columns] =
/// left [rows, inner] x right [inner, columns]. Each operand may be stored transposed.
struct ProductSpec {
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  std::int64_t columns = 0;
  bool left_is_transposed = false;   ///< left is stored as [inner, rows]
  bool right_is_transposed = false;  ///< right is stored as [columns, inner]
  bool result_is_float32 = false;    ///< otherwise the context's precision
  bool bias = false;                 ///< one per result column, of the result's type
  bool relu = false;
  std::int64_t left_stride = 0;    ///< elements from a stored row of left to the next; 0: no gap
  std::int64_t result_stride = 0;  ///< elements from a result row to the next; 0: no gap
  std::int64_t products = 1;       ///< how many, if matrices follow one another without gaps
};

/// One product. Its algorithm is the first proposal of cuBLASLt's heuristics that cuBLASLt runs.
class MatrixProduct {
 public:
  /// Throws Error (device) if cuBLASLt has no algorithm.
  MatrixProduct(Context& context, const ProductSpec& spec);

  /// The largest workspace of its algorithms.
  std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Enqueues the product on the context's stream. `bias` is used if the spec has one; arrays are
  /// 16-byte aligned. With `adds`, adds it to the result instead of writing it. Drops algorithms
  /// that cuBLASLt refuses to run. Throws Error (device) if it refuses all of them.
  void run(const void* left, const void* right, const void* bias, void* workspace, void* result,
           bool adds = false);

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
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms_;  // the presumably fastest first
  std::size_t workspace_bytes_ = 0;
};

}  // namespace lockstep::inline v0::model::cuda
