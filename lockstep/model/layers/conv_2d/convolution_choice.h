// The choice between cuDNN's implementations of a convolution.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/conv_2d/convolution.h"

namespace lockstep::inline v0::model::cuda {

/// The engine and algorithm for `pass`, as ComputeOptions::convolutions allows: from the cache, or
/// the fastest in a trial, which includes FoldedConvolution. Without memory for a trial, or if
/// determinism is required, the first proposal that works, those of the graph API first. All
/// channels of the input after the first `channels` are zero. Throws Error (device) if there is
/// none.
std::unique_ptr<ConvolutionEngine> choose_convolution(Context& context, const Conv2DSpec& spec,
                                                      std::int64_t channels, ConvolutionPass pass);

/// Whether a convolution may compute per-channel sums of its output while writing it: only in 16
/// bits, and not if determinism is required.
bool may_sum_channels(const ComputeOptions& options);

/// The forward pass with sums, in its fastest configuration for this shape, from the cache or by
/// measurement, if it is faster than `separate` plus a pass over the output for the sums. Null if
/// it is not, or if cuDNN or the options do not allow it.
std::unique_ptr<ConvolutionEngine> choose_summing_convolution(Context& context,
                                                              const Conv2DSpec& spec,
                                                              ConvolutionEngine& separate);

}  // namespace lockstep::inline v0::model::cuda
