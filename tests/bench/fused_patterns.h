// Graphs of a convolution fused with adjacent layers of a residual network, for which cuDNN has
// engines in float16.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "lockstep/model/cuda/cudnn_graph.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"

namespace lockstep::inline v0::bench {

/// The computation of a graph. "Normalized": the input is scaled and shifted by channel, followed
/// by a ReLU, before the convolution.
enum class Pattern {
  statistics,             ///< convolution, sums of its output by channel
  normalized_statistics,  ///< normalized input, convolution, sums of its output
  normalized_filter,      ///< normalized input, gradient of the kernel
  data_sums,  ///< gradient of the input through a ReLU, sums for the normalization before that
};

std::string_view to_string(Pattern pattern);

/// A pattern in float16 as a cuDNN graph.
class PatternGraph {
 public:
  /// `handle` belongs to the GPU that executes the graph; null only describes the graph. Throws
  /// Error (device) if cuDNN refuses the description.
  PatternGraph(cudnnHandle_t handle, Pattern pattern, const model::Conv2DSpec& spec);

  const model::cuda::GraphDescriptor& whole() const { return whole_; }
  /// Ids of the tensors in memory; bytes() has their sizes.
  const std::vector<std::int64_t>& ids() const { return ids_; }
  const std::vector<std::size_t>& bytes() const { return bytes_; }

 private:
  using Descriptor = model::cuda::GraphDescriptor;

  const Descriptor& tensor(cudnnDataType_t type, const model::cuda::TensorSizes& sizes,
                           bool is_virtual = false);
  const Descriptor& add(Descriptor operation);
  const Descriptor& pointwise(cudnnPointwiseMode_t mode);
  const Descriptor& combined(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor& b);
  const Descriptor& normalized(const Descriptor& image, std::int64_t channels);
  void add_data_sums(const model::Conv2DSpec& spec, const Descriptor& window);

  std::deque<Descriptor> parts_;  // which refer to one another
  std::vector<const Descriptor*> operations_;
  std::vector<std::int64_t> ids_;
  std::vector<std::size_t> bytes_;
  model::cuda::TensorSizes image_{};  // sizes of the convolution's input
  std::int64_t last_id_ = 0;
  Descriptor whole_;
};

}  // namespace lockstep::inline v0::bench
