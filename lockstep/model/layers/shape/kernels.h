// The kernel of layers that move elements.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/model/layers/shape/strided_copy.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Copies the elements of `copy`, which have the same type in both arrays. Returns when the work is
/// enqueued on `stream`.
void copy_strided(const StridedCopy& copy, const TensorView& from, const TensorView& to,
                  cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
