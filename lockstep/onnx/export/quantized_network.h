// Networks with layers in 8-bit integers: where values are rounded, and the network that simulates
// the integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "lockstep/model/network/fold_normalizations.h"
#include "lockstep/model/network/network.h"
#include "lockstep/onnx/export/activation_range.h"

namespace lockstep::inline v0::onnx {

/// The layers of `network`, in its order, that support int8: convolutions and dense layers that an
/// output depends on.
std::vector<model::NodeId> layers_for_int8(const model::Network& network);

/// Where the values of a network are rounded to uint8, so that runtimes such as onnxruntime fuse
/// int8 layers: before each int8 layer, after each int8 convolution, and after additions,
/// concatenations and max poolings of rounded values. A ReLU directly after such a layer precedes
/// the rounding. Outputs of the network are not rounded.
class RoundingPlan {
 public:
  /// `int8`: some of layers_for_int8(network), which must outlive the plan.
  RoundingPlan(const model::Network& network, const std::set<model::NodeId>& int8);

  /// The inputs and layers whose values are rounded, ascending. The plan of all layers_for_int8()
  /// rounds a superset of the values of any other plan.
  std::vector<model::NodeId> rounded() const;
  /// The value whose range applies to `value`: itself, or the input of preceding layers that keep
  /// values.
  model::NodeId range_of(model::NodeId value) const;
  /// Whether input `input` of the layer `reader` is rounded.
  bool reads_rounded(model::NodeId reader, std::size_t input) const;

 private:
  enum class Readers { none, int8, all };  // readers of the rounded value

  bool is_for_all(model::NodeId value) const { return readers_[index(value)] == Readers::all; }
  std::size_t index(model::NodeId value) const {
    return static_cast<std::size_t>(std::int64_t{value} + static_cast<std::int64_t>(inputs_));
  }

  const model::Network& network_;
  std::set<model::NodeId> int8_;
  std::size_t inputs_;            // number of network inputs, which precede the layers in index()
  std::vector<Readers> readers_;  // by index()
  std::vector<model::NodeId> sources_;
};

/// The network with the layers `int8` rounded: a fake_quantize LAYER_uint8 where the plan rounds,
/// kernels and biases as export_network() stores them for ExportOptions::int8_layers and
/// `weight_bits`. `ranges` contains at least RoundingPlan::rounded(). Layers and outputs keep their
/// names.
model::FoldedNetwork quantized_network(const model::FoldedNetwork& original,
                                       const std::set<model::NodeId>& int8,
                                       const std::map<model::NodeId, ActivationRange>& ranges,
                                       int weight_bits = 8);

}  // namespace lockstep::inline v0::onnx
