// Kernels on the rows of a table. All functions return when the work is enqueued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// output[i] = table[indices[i]], rows of `dimension` elements. All have the type of `table`.
void gather_rows(const TensorView& table, std::span<const std::int32_t> indices,
                 std::int64_t dimension, const TensorView& output, cudaStream_t stream);

/// Bytes of workspace for sum_rows() of `count` indices.
std::size_t sum_rows_bytes(std::int64_t count);
/// sums[v] = sum of rows[i] over the i with indices[i] = v, 0 without any; with `add`, sums[v] is
/// increased by it. The order of the sum depends on the indices alone: bitwise reproducible.
void sum_rows(const TensorView& rows, std::span<const std::int32_t> indices, std::int64_t dimension,
              std::span<float> sums, bool add, std::byte* workspace, cudaStream_t stream);

/// output[i] = input[i] + table[i % elements of the table]; the output may alias the input. All
/// have one type.
void add_table(const TensorView& input, const TensorView& table, const TensorView& output,
               cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
