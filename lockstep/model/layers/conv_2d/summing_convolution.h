// A convolution that computes per-channel sums of its output while writing it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/convolution.h"
#include "lockstep/model/layers/conv_2d/cudnn_graph.h"

namespace lockstep::model::cuda {

/// Whether such convolutions are allowed: only in 16 bits, and not if determinism is required.
bool may_sum_channels(const ComputeOptions& options);

/// The forward pass as a cuDNN graph: a convolution whose output also feeds a statistics operation
/// (GenStats). The sums are in float32, in cuDNN's order, over the output either before or after
/// its rounding to 16 bits. cuDNN's guide calls this pattern ConvBNfprop.
class SummingGraph {
 public:
  /// Without bias, ReLU and groups; `window` must have symmetric padding. `handle` belongs to the
  /// GPU that executes the graph; null only describes the graph. Throws Error (device) if cuDNN
  /// refuses the description.
  SummingGraph(cudnnHandle_t handle, cudnnDataType_t type, const Conv2DSpec& spec,
               const WindowGeometry& window);

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

/// The graph, and its engine configurations.
class SummingConvolution {
 public:
  /// As SummingGraph, on the context's GPU.
  SummingConvolution(Context& context, const Conv2DSpec& spec, const WindowGeometry& window);

  /// Number of engine configurations that cuDNN's heuristics propose, the presumably fastest first,
  /// without those whose kernels would have to be compiled now. Some may not work.
  int ways() const { return static_cast<int>(configurations_.size()); }
  /// Selects configuration `number`, 0 .. ways() - 1. Returns false if it does not work; none is
  /// selected then.
  bool take(int number);

  // Of the selected configuration.
  std::size_t workspace_bytes() const { return plan_->workspace_bytes(); }
  /// Enqueues the pass on the context's stream.
  void forward(const void* input, const void* kernel, void* workspace, void* output,
               const ChannelSums& sums);

 private:
  Context& context_;
  SummingGraph graph_;
  std::vector<GraphDescriptor> configurations_;
  std::optional<GraphPlan> plan_;
};

/// The fastest configuration for this shape, from the cache or by measurement, if it is faster than
/// `apart` with `algorithm` plus a separate pass over the output for the sums. Null if it is not,
/// or if cuDNN or the options do not allow it.
std::unique_ptr<SummingConvolution> choose_summing_convolution(
    Context& context, const Conv2DSpec& spec, const WindowGeometry& window, Convolution& apart,
    const ConvolutionAlgorithm& algorithm);

}  // namespace lockstep::model::cuda
