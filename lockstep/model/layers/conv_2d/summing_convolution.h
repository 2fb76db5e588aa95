// A convolution that computes per-channel sums of its output while writing it.
#pragma once

#include <memory>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/conv_2d/convolution.h"

namespace lockstep::model::cuda {

/// Whether such convolutions are allowed: only in 16 bits, and not if determinism is required.
bool may_sum_channels(const ComputeOptions& options);

/// The forward pass with sums, in its fastest configuration for this shape, from the cache or by
/// measurement, if it is faster than `apart` plus a separate pass over the output for the sums.
/// Null if it is not, or if cuDNN or the options do not allow it.
std::unique_ptr<ConvolutionEngine> choose_summing_convolution(Context& context,
                                                              const Conv2DSpec& spec,
                                                              ConvolutionEngine& apart);

}  // namespace lockstep::model::cuda
