// The passes of a convolution on a GPU, and the measurement of their algorithms.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/buffer.h"
#include "lockstep/model/cuda/algorithm_cache.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/cudnn_graph.h"
#include "lockstep/model/cuda/trial_timer.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"

namespace lockstep::inline v0::model::cuda {

/// The three passes of a convolution.
enum class ConvolutionPass { forward, backward_data, backward_filter };

/// The arrays of a convolution in GPU memory, 16-byte aligned; in backward passes their gradients.
/// A pass writes one of the first three, and reads the two others.
struct ConvolutionArrays {
  void* input = nullptr;   ///< [batch, height, width, channels]
  void* kernel = nullptr;  ///< [filters, kernel height, kernel width, channels / groups]
  void* output = nullptr;  ///< [batch, output height, output width, filters]
  ChannelSums sums = {};   ///< sums of the output; written by a GraphConvolution with sums
};

/// One pass of a convolution, by one of cuDNN's interfaces. With Conv2DSpec::adds_input_gradient,
/// the gradient of the input is added to the existing values.
class ConvolutionEngine {
 public:
  virtual ~ConvolutionEngine() = default;
  /// The algorithms that cuDNN's heuristics propose, the presumably fastest first; may be empty.
  /// Some may not work.
  virtual std::vector<ConvolutionAlgorithm> proposals() = 0;
  /// Selects `algorithm`. Returns false if it does not belong to this engine or does not work.
  virtual bool select(const ConvolutionAlgorithm& algorithm) = 0;

  // Require a selected algorithm.
  virtual std::size_t workspace_bytes() const = 0;
  /// Enqueues the pass on the context's stream. `workspace` is aligned as in a ScratchPlan.
  virtual void run(const ConvolutionArrays& arrays, void* workspace) = 0;
};

/// "a convolution of [32, 56, 56, 64] with 128 filters 3x3, …"
std::string describe(const Conv2DSpec& spec);

/// The cache key of `work` on this convolution, such as "forward".
std::string algorithm_key(const Context& context, const Conv2DSpec& spec, std::string_view work);

/// Temporary memory for timing algorithms of a convolution, with random values.
struct TrialMemory {
  /// Allocates a workspace of `workspace_bytes`. Throws Error (device).
  TrialMemory(Context& context, const Conv2DSpec& spec, std::size_t workspace_bytes);

  ConvolutionArrays arrays() { return {input.data(), kernel.data(), output.data()}; }

  device::Buffer input;
  device::Buffer kernel;
  device::Buffer output;
  device::Buffer workspace;
  TrialTimer timer;
};

/// Null if there is not enough memory for a trial.
std::unique_ptr<TrialMemory> trial_memory(Context& context, const Conv2DSpec& spec);

/// Times up to 8 proposals of `engine` in the work that `enqueue` enqueues, for at most 5 seconds,
/// because preparing an engine can be slow. Returns the fastest if it takes less than `shortest`
/// milliseconds, which then becomes its time. Any may be selected afterwards.
std::optional<ConvolutionAlgorithm> fastest_of(Context& context, ConvolutionEngine& engine,
                                               TrialMemory& memory,
                                               const std::function<void()>& enqueue,
                                               float& shortest);

}  // namespace lockstep::inline v0::model::cuda
