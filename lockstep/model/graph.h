// The order in which a network's layers run, after rewrites that change no result.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/model/network.h"

namespace lockstep::model {

/// One layer in execution order. Its output is named by the node's id.
struct GraphStep {
  NodeId node = kInput;
  std::vector<NodeId> inputs;
  std::vector<Shape> input_shapes;
  Shape output_shape;
  bool fused_add = false;         ///< also adds its second input, before the ReLU
  bool fused_relu = false;        ///< also applies the ReLU that follows it
  bool fused_statistics = false;  ///< may also find the statistics for the normalization that follows it
  bool absorbed = false;          ///< a ReLU or addition that the layer before it does: only a name
};

struct Graph {
  std::vector<GraphStep> steps;
  NodeId output = kInput;
};

/// What a device's operations can do beyond their own layer.
struct Fusions {
  bool additions = false;
  bool statistics = false;
};

/// Steps of `network` that its output depends on, with two rewrites. A ReLU directly before a max pooling moves behind
/// it: max(x, 0) is monotonic, so values and gradients stay, on fewer elements. A ReLU that alone reads a layer which
/// can apply it is fused into that layer. With `additions`, so is an addition of two that directly follows a layer
/// which can add and which it alone reads. With `statistics`, a convolution without bias and ReLU that a normalization
/// alone reads is marked.
Graph make_graph(const Network& network, const Fusions& fusions = {});

}  // namespace lockstep::model
