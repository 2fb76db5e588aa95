// A pass of a convolution with strides and few channels, by one without strides of an image with
// fewer pixels and more channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/model/cuda/bias.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/convolution.h"

namespace lockstep::inline v0::model::cuda {

/// Whether FoldedConvolution computes `pass` of `spec` and may be faster. `channels` are those of
/// the input that are not zero, at most 4. The input gradient is not supported: such a convolution
/// is usually the first layer, which does not need it.
bool can_be_folded(const Conv2DSpec& spec, std::int64_t channels, ConvolutionPass pass);
/// Returns the convolution that computes what `spec` does from a folded image (see Folding).
Conv2DSpec with_folded_image(const Conv2DSpec& spec, std::int64_t channels, Precision precision);

/// A pass of `spec` by another engine, of a folded copy of the image, in the workspace. Tensor
/// cores multiply at least 8 channels, so 7x7 taps of 3 channels with strides of 2 are mostly
/// zeros; as 4x4 taps of 12 channels they are not. The kernel and its gradient are rearranged in
/// each pass, so nothing outside depends on it. Its algorithms are those of the other engine, with
/// `folded` set.
class FoldedConvolution final : public ConvolutionEngine {
 public:
  /// `engine` computes `pass` of with_folded_image(spec).
  FoldedConvolution(Context& context, const Conv2DSpec& spec, std::int64_t channels,
                    ConvolutionPass pass, std::unique_ptr<ConvolutionEngine> engine);

  std::vector<ConvolutionAlgorithm> proposals() override;
  bool select(const ConvolutionAlgorithm& algorithm) override;
  std::size_t workspace_bytes() const override { return own_bytes_ + engine_->workspace_bytes(); }
  void run(const ConvolutionArrays& arrays, void* workspace) override;

 private:
  TensorView view(void* data, std::int64_t elements) const;

  Context& context_;
  Conv2DSpec spec_;
  Conv2DSpec folded_;
  Folding folding_;
  ConvolutionPass pass_;
  std::unique_ptr<ConvolutionEngine> engine_;
  // The workspace begins with the folded image; the kernel follows at kernel_at_.
  std::size_t kernel_at_ = 0;
  std::size_t own_bytes_ = 0;
};

}  // namespace lockstep::inline v0::model::cuda
