// A pass of a convolution by cuDNN's legacy interface: descriptors and numbered algorithms.
#pragma once

#include <cudnn.h>

#include <vector>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/conv_2d/convolution.h"

namespace lockstep::inline v0::model::cuda {

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

/// Supports only symmetric zero padding; PaddedConvolution handles the rest.
class LegacyConvolution final : public ConvolutionEngine {
 public:
  /// Throws Error (device) if cuDNN refuses the description.
  LegacyConvolution(Context& context, const Conv2DSpec& spec, ConvolutionPass pass);

  std::vector<ConvolutionAlgorithm> proposals() override;
  bool select(const ConvolutionAlgorithm& algorithm) override;
  std::size_t workspace_bytes() const override { return algorithm_.workspace_bytes; }
  void run(const ConvolutionArrays& arrays, void* workspace) override;

 private:
  bool is_exact() const;
  void set_mathematics(cudnnMathType_t type);

  Context& context_;
  Conv2DSpec spec_;
  ConvolutionPass pass_;
  TensorDescriptor input_;
  FilterDescriptor kernel_;
  TensorDescriptor output_;
  ConvolutionDescriptor convolution_;
  ConvolutionAlgorithm algorithm_;
};

}  // namespace lockstep::inline v0::model::cuda
