// A network some of whose layers compute with 8-bit integers: where values are rounded, and the
// network that computes what programs compute with those integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "lockstep/model/fold_normalizations.h"
#include "lockstep/model/network.h"
#include "lockstep/onnx/activation_range.h"

namespace lockstep::onnx {

/// The layers of `network`, in its order, that integers can compute: convolutions and dense layers
/// that an output depends on.
std::vector<model::NodeId> layers_for_int8(const model::Network& network);

/// Where the values of a network are rounded to uint8, so that programs such as onnxruntime fuse
/// layers of integers: before each int8 layer, after each int8 convolution, and after additions,
/// concatenations and max poolings of rounded values. A ReLU directly after such a layer comes
/// before the rounding. Outputs of the network are not rounded.
class RoundingPlan {
 public:
  /// `int8`: some of layers_for_int8(network), which must outlive the plan.
  RoundingPlan(const model::Network& network, const std::set<model::NodeId>& int8);

  /// The inputs and layers whose values are rounded, ascending. Fewer int8 layers have fewer of
  /// them: those of all layers_for_int8() are the ranges that any plan reads.
  std::vector<model::NodeId> rounded() const;
  /// The value whose range is that of `value`: itself, or that before layers which keep values.
  model::NodeId range_of(model::NodeId value) const;
  /// Whether the layer `reader` reads its input number `input` rounded.
  bool reads_rounded(model::NodeId reader, std::size_t input) const;

 private:
  enum class Readers { none, int8, all };  // of the rounded values

  bool is_for_all(model::NodeId value) const { return readers_[index(value)] == Readers::all; }
  std::size_t index(model::NodeId value) const {
    return static_cast<std::size_t>(std::int64_t{value} + static_cast<std::int64_t>(inputs_));
  }

  const model::Network& network_;
  std::set<model::NodeId> int8_;
  std::size_t inputs_;            // of the network, before its layers in the arrays
  std::vector<Readers> readers_;  // by index()
  std::vector<model::NodeId> sources_;
};

/// The network with the layers `int8` rounded: a fake_quantize LAYER_uint8 where the plan rounds,
/// kernels and biases as export_network() stores them for ExportOptions::int8_layers and
/// `weight_bits`. `ranges`: by value, of at least RoundingPlan::rounded(). All layers keep their
/// names, and outputs theirs.
model::FoldedNetwork quantized_network(const model::FoldedNetwork& original,
                                       const std::set<model::NodeId>& int8,
                                       const std::map<model::NodeId, ActivationRange>& ranges,
                                       int weight_bits = 8);

}  // namespace lockstep::onnx
