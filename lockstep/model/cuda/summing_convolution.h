// A convolution that sums its output up, channel by channel, while it writes it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/model/backend.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/convolution.h"
#include "lockstep/model/cuda/cudnn_graph.h"

namespace lockstep::model::cuda {

/// Whether convolutions may be of this kind at all: in 16 bits, and not where the same bits are wanted in every run.
bool may_sum_channels(const ComputeOptions& options);

/// The forward pass as a graph of cuDNN's: a convolution whose output is also read by what sums it up (GenStats). The
/// sums are taken in float32, in cuDNN's order, of what is written, whether before or after its rounding to 16 bits.
/// cuDNN's guide has this as the pattern ConvBNfprop.
class SummingGraph {
 public:
  /// Without bias, ReLU and groups; `window` pads both sides alike. `handle` is of the GPU that is to run it, or null
  /// to describe it without one. Throws Error (device) where cuDNN refuses the description.
  SummingGraph(cudnnHandle_t handle, cudnnDataType_t type, const Conv2DSpec& spec, const WindowGeometry& window);

  const GraphDescriptor& whole() const { return whole_; }

 private:
  GraphDescriptor input_;
  GraphDescriptor kernel_;
  GraphDescriptor output_;
  GraphDescriptor sums_;
  GraphDescriptor squares_;
  GraphDescriptor window_;
  GraphDescriptor convolution_;
  GraphDescriptor statistics_;
  GraphDescriptor whole_;
};

/// That graph, and ways to run it.
class SummingConvolution {
 public:
  /// As SummingGraph, on the context's GPU.
  SummingConvolution(Context& context, const Conv2DSpec& spec, const WindowGeometry& window);

  /// Ways to compute it that cuDNN's rules propose, what they take for the fastest first. Not all need work.
  int ways() const { return static_cast<int>(configurations_.size()); }
  /// Takes way `number`, 0 .. ways() - 1, from now on; false where it does not work, and none is taken then.
  bool take(int number);

  // Of the way that was taken.
  std::size_t workspace_bytes() const { return plan_->workspace_bytes(); }
  /// Puts it on the context's stream.
  void forward(const void* input, const void* kernel, void* workspace, void* output, const ChannelSums& sums);

 private:
  Context& context_;
  SummingGraph graph_;
  std::vector<GraphDescriptor> configurations_;
  std::optional<GraphPlan> plan_;
};

/// The fastest way for this shape, where it is faster than `apart` by `algorithm` and a pass that reads the output for
/// its sums: from the cache, or by measurement. Null where it is not, and where cuDNN or the options have none.
std::unique_ptr<SummingConvolution> choose_summing_convolution(Context& context, const Conv2DSpec& spec,
                                                               const WindowGeometry& window, Convolution& apart,
                                                               const ConvolutionAlgorithm& algorithm);

}  // namespace lockstep::model::cuda
