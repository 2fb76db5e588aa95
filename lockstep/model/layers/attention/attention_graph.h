// Attention as a graph of cuDNN, whose engines need one kernel for forward and a few for backward.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "lockstep/model/cuda/cudnn_graph.h"
#include "lockstep/model/layers/attention/attention.h"

namespace lockstep::inline v0::model::cuda {

/// The two passes of an attention.
enum class AttentionPass { forward, backward };

/// A pass as the pattern of matrix products, mask and softmax that cuDNN's guide calls scaled
/// dot-product attention; the scores are never in memory. With the strides of AttentionSpec::part:
/// packed queries, keys and values are not copied. Products add up in float32.
class AttentionGraph {
 public:
  /// The ids of its tensors. Forward reads queries, keys, values, scale and hidden, and writes
  /// output and, in training, divisors; backward reads all of these, output_gradient and one.
  enum Id : std::int64_t {
    kQueries = 1,
    kKeys,
    kValues,
    kOutput,
    kDivisors,  ///< float32 [batch, heads, T]: logarithms of the softmaxes' divisors
    kScale,     ///< one float in host memory: AttentionSpec::scale
    kHidden,    ///< one float in host memory: -infinity; with AttentionSpec::causal
    kOutputGradient,
    kOne,  ///< one float in host memory: 1
    kQueryGradient,
    kKeyGradient,
    kValueGradient,
    kProducts,   ///< float32 [batch, heads, T], workspace
    kQuerySums,  ///< float32 [batch, heads, T, E], workspace
    kFirstVirtual
  };

  /// `type` is CUDNN_DATA_HALF or CUDNN_DATA_BFLOAT16. Supports neither segments nor rotation; the
  /// bytes of a head are a multiple of 16. `handle` belongs to the GPU that executes the graph;
  /// null only describes it. Throws Error (device) if cuDNN refuses the description.
  AttentionGraph(cudnnHandle_t handle, cudnnDataType_t type, const AttentionSpec& spec,
                 AttentionPass pass);

  const GraphDescriptor& whole() const { return whole_; }
  /// The tensors that are in memory, in the order of their ids.
  const std::vector<std::int64_t>& ids() const { return ids_; }

 private:
  using Tensor = const GraphDescriptor&;

  Tensor add_tensor(std::int64_t id, cudnnDataType_t type, const TensorSizes& sizes,
                    const TensorSizes& strides, TensorMemory memory = TensorMemory::gpu);
  Tensor add_part(std::int64_t id, std::size_t which, bool transposed);  // part of an input
  Tensor add_output(std::int64_t id);
  Tensor add_row_values(std::int64_t id, TensorMemory memory);  // one per query
  Tensor add_number(std::int64_t id);
  Tensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Tensor row_values() { return add_row_values(next_virtual_++, TensorMemory::none); }

  const GraphDescriptor& add_operation(GraphDescriptor operation);
  void multiply(Tensor left, Tensor right, Tensor product);
  void transpose(Tensor from, Tensor to);
  void reduce(cudnnReduceTensorOp_t by, Tensor from, Tensor to);
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, const GraphDescriptor* b, Tensor y,
                 cudnnDataType_t type = CUDNN_DATA_FLOAT, const GraphDescriptor* select = nullptr,
                 std::int64_t axis = -1);
  // The scores after masking.
  Tensor masked(Tensor all);
  void describe_forward();
  void describe_backward();
  // The gradient of keys or values: the product of the transposed `scores` and of `rows`, added up
  // over the heads that share them.
  void write_gradient(Tensor scores, Tensor rows, std::int64_t id, std::size_t which);

  cudnnDataType_t type_;
  AttentionSpec spec_;
  std::deque<GraphDescriptor> parts_;
  std::vector<const GraphDescriptor*> operations_;
  std::vector<std::int64_t> ids_;
  std::int64_t next_virtual_ = kFirstVirtual;
  GraphDescriptor whole_;
};

}  // namespace lockstep::inline v0::model::cuda
