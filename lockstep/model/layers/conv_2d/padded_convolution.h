// A pass of a convolution with more zeros on one side of the image than on the other.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/convolution.h"

namespace lockstep::inline v0::model::cuda {

/// Whether the window has more zeros on one side than on the other.
bool has_uneven_zeros(const WindowGeometry& window);
/// The convolution of an image that already includes its zeros.
Conv2DSpec with_zeros_in_image(Conv2DSpec spec);

/// A pass of `spec` by another engine, which reads or writes a copy of the image with its zeros, in
/// the workspace. cuDNN's legacy interface has no uneven zeros, and engines of the graph API
/// compute wrong gradients with them (cuDNN 9.19 on an H100, float32).
class PaddedConvolution final : public ConvolutionEngine {
 public:
  /// `engine` computes `pass` of with_zeros_in_image(spec).
  PaddedConvolution(Context& context, const Conv2DSpec& spec, ConvolutionPass pass,
                    std::unique_ptr<ConvolutionEngine> engine);

  std::vector<ConvolutionAlgorithm> proposals() override { return engine_->proposals(); }
  bool select(const ConvolutionAlgorithm& algorithm) override { return engine_->select(algorithm); }
  std::size_t workspace_bytes() const override { return own_bytes_ + engine_->workspace_bytes(); }
  void run(const ConvolutionArrays& arrays, void* workspace) override;

 private:
  Context& context_;
  Conv2DSpec spec_;
  ConvolutionPass pass_;
  std::unique_ptr<ConvolutionEngine> engine_;
  std::size_t elements_ = 0;   // elements of the copy
  std::size_t own_bytes_ = 0;  // workspace bytes of the copy
};

}  // namespace lockstep::inline v0::model::cuda
