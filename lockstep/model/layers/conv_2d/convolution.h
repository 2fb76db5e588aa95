// cuDNN descriptors of one convolution, and its algorithms.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/cuda/algorithm_cache.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"

namespace lockstep::model::cuda {

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

/// The maximum workspace of a convolution: a part of a step's memory, not most of it.
constexpr std::size_t kMaxWorkspace = std::size_t{1} << 30;

/// The three passes of a convolution.
enum class ConvolutionPass { forward, backward_data, backward_filter };

/// A convolution of images [batch, height, width, channels] with symmetric zero padding.
class Convolution {
 public:
  /// `window` must have symmetric padding; asymmetric zeros are part of the image.
  Convolution(Context& context, const Conv2DSpec& spec, const WindowGeometry& window);

  /// Chooses the algorithm of `pass`: from the cache, or the fastest in a trial. Uses cuDNN's
  /// heuristics if there is no memory for a trial, or if determinism is required. Throws Error
  /// (device) if there is no algorithm.
  ConvolutionAlgorithm choose(ConvolutionPass pass);

  // Each enqueues its pass on the context's stream. `workspace` has the size that the algorithm
  // needs. With `add`, the gradient is added to what `input_gradient` holds.
  void forward(const ConvolutionAlgorithm& algorithm, const void* input, const void* kernel,
               void* workspace, void* output);
  void backward_data(const ConvolutionAlgorithm& algorithm, const void* kernel,
                     const void* output_gradient, void* workspace, void* input_gradient,
                     bool add = false);
  void backward_filter(const ConvolutionAlgorithm& algorithm, const void* input,
                       const void* output_gradient, void* workspace, void* kernel_gradient);

  /// Sizes of its arrays in GPU memory.
  struct Bytes {
    std::size_t input = 0;
    std::size_t kernel = 0;
    std::size_t output = 0;
  };
  const Bytes& bytes() const { return bytes_; }
  /// Whether there is enough memory for a trial.
  bool fits_for_trying() const;
  /// The cache key of `work` on this convolution, such as "forward".
  std::string key(std::string_view work) const;

 private:
  struct Tried;
  bool is_exact() const;
  void allow_all_mathematics();
  std::vector<ConvolutionAlgorithm> proposals(ConvolutionPass pass);
  ConvolutionAlgorithm by_rules(ConvolutionPass pass);
  std::unique_ptr<Tried> memory_for_trying();
  ConvolutionAlgorithm try_out(ConvolutionPass pass, Tried& on);
  void run(ConvolutionPass pass, const ConvolutionAlgorithm& algorithm, const Tried& on);
  void use(const ConvolutionAlgorithm& algorithm);

  Context& context_;
  std::string description_;
  Bytes bytes_;
  TensorDescriptor input_;
  FilterDescriptor kernel_;
  TensorDescriptor output_;
  ConvolutionDescriptor convolution_;
};

}  // namespace lockstep::model::cuda
