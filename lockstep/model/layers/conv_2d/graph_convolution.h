// A pass of a convolution by cuDNN's graph API.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/cudnn_graph.h"
#include "lockstep/model/layers/conv_2d/convolution.h"

namespace lockstep::inline v0::model::cuda {

GraphDescriptor describe_window(const WindowGeometry& window);

/// The operation of `pass`; with `adds` it adds to the array that it writes. The descriptors must
/// outlive it.
GraphDescriptor describe_convolution(ConvolutionPass pass, bool adds, const GraphDescriptor& window,
                                     const GraphDescriptor& input, const GraphDescriptor& kernel,
                                     const GraphDescriptor& output);

/// Sums of `values` and of their squares, by channel, in float32 (GenStats).
GraphDescriptor describe_sums(const GraphDescriptor& values, const GraphDescriptor& sums,
                              const GraphDescriptor& squares);

/// A pass as a graph. With sums, the output of the forward pass also feeds a statistics operation:
/// the sums are in float32, in cuDNN's order, over the output either before or after its rounding
/// to 16 bits. cuDNN's guide calls this pattern ConvBNfprop.
class ConvolutionGraph {
 public:
  /// `sums` only in the forward pass, without bias and ReLU. `handle` belongs to the GPU that
  /// executes the graph; null only describes the graph. Throws Error (device) if cuDNN refuses the
  /// description.
  ConvolutionGraph(cudnnHandle_t handle, cudnnDataType_t type, const Conv2DSpec& spec,
                   ConvolutionPass pass, bool sums = false);

  const GraphDescriptor& whole() const { return whole_; }

 private:
  GraphDescriptor input_;
  GraphDescriptor kernel_;
  GraphDescriptor output_;
  GraphDescriptor window_;
  GraphDescriptor convolution_;
  std::optional<GraphDescriptor> sums_;
  std::optional<GraphDescriptor> squares_;
  std::optional<GraphDescriptor> statistics_;
  GraphDescriptor whole_;
};

/// The numbers of its algorithms are those of the usable engine configurations.
class GraphConvolution final : public ConvolutionEngine {
 public:
  /// As ConvolutionGraph, on the context's GPU.
  GraphConvolution(Context& context, const Conv2DSpec& spec, ConvolutionPass pass,
                   bool sums = false);

  std::vector<ConvolutionAlgorithm> proposals() override;
  bool select(const ConvolutionAlgorithm& algorithm) override;
  std::size_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  void run(const ConvolutionArrays& arrays, void* workspace) override;

 private:
  Context& context_;
  bool sums_;
  ConvolutionGraph graph_;
  std::vector<GraphDescriptor> configurations_;
  std::optional<GraphPlan> plan_;
};

}  // namespace lockstep::inline v0::model::cuda
