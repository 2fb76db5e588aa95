// The execution order of a network's layers, after rewrites that do not change any result.
#pragma once

#include <algorithm>
#include <vector>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::model {

/// One layer in execution order. The node's id identifies its output.
struct GraphStep {
  NodeId node = kInput;
  std::vector<NodeId> inputs;
  std::vector<Shape> input_shapes;
  Shape output_shape;
  bool fused_add = false;   ///< also adds its second input, before the ReLU
  bool fused_relu = false;  ///< also applies the following ReLU
  /// May also compute the statistics for the following normalization.
  bool fused_statistics = false;
  bool absorbed = false;  ///< a ReLU or addition fused into the preceding layer; an alias
};

struct Graph {
  std::vector<GraphStep> steps;
  /// The outputs of the network, in its order. They count as read.
  std::vector<NodeId> outputs;

  bool is_output(NodeId value) const { return std::ranges::find(outputs, value) != outputs.end(); }
};

/// The steps of `network` that its outputs depend on, with these rewrites. A ReLU directly before a
/// max pooling moves after it: max(x, 0) is monotonic, so values and gradients are unchanged, with
/// fewer elements to process. A ReLU that is the only reader of a layer that can apply it is fused
/// into that layer. An addition of two inputs is fused into the layer directly before it, if that
/// layer supports it and the addition is its only reader. With `statistics`, a convolution without
/// bias and ReLU is marked if its only reader is a normalization that is not frozen.
Graph make_graph(const Network& network, bool statistics = false);

}  // namespace lockstep::inline v0::model
