// From a network and its weights to ONNX.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/pixels.h"
#include "lockstep/model/network.h"
#include "lockstep/onnx/model.h"

namespace lockstep::onnx {

/// The flat arrays of a network, in the layout of its tables.
struct NetworkArrays {
  std::span<const float> parameters;  ///< Network::parameters()
  std::span<const float> buffers;     ///< Network::buffers()
};

/// What operators of the graph do to the first input with floats before the network.
struct Preprocessing {
  /// The input is uint8 pixels: they are divided by 255 and normalized.
  std::optional<ChannelNormalization> pixels = {};
  /// Of each column of an input [columns]: (x - offset) / divisor, 0 for a divisor of 0. In
  /// float32, within 3e-7 of the quotient of doubles. Empty: none.
  std::vector<double> offsets = {};
  std::vector<double> divisors = {};  ///< as many
  /// As many: what replaces NaN before; NaN: nothing.
  std::vector<double> fills = {};
};

/// How arrays of weights are stored.
enum class WeightStorage {
  float32,  ///< as they are
  float16,  ///< arrays of several axes and at least 128 elements as float16,
            ///< with a Cast to float32
};

/// How a network is exported.
struct ExportOptions {
  /// Whether the graph is for inference alone: batch normalizations become part of the convolutions
  /// and dense layers before them, and dropouts are left out.
  bool fold = true;
  /// Of the arrays that are not int8 or int32.
  WeightStorage weights = WeightStorage::float32;
  /// Names of layers whose kernel is stored as int8, with a scale for each output channel, and
  /// their bias as int32 (int8_layers.h). Their inputs are fake_quantize layers.
  std::set<std::string, std::less<>> int8_layers = {};
  int weight_bits = 8;  ///< that those kernels use, as QuantizeOptions::weight_bits
  Preprocessing preprocessing = {};
  /// Whether segments are those of one text, 1, and the padding after it, 0: a recurrent layer
  /// needs that.
  bool one_document = false;
  std::string producer_version = {};                 ///< of Lockstep
  std::map<std::string, std::string> metadata = {};  ///< of the model
};

/// The network in inference as a graph of IR version 8 and opset 17, with a free first axis,
/// "batch".
///
/// Inputs and outputs have the names of the network's. Those with three axes [H, W, C] are
/// [batch, C, H, W]; all others have Lockstep's order. Images are channels first inside, too: the
/// constants are transposed. An array of weights has its name in the network ("conv1/kernel"), an
/// operator that of its layer; the name of an array that is stored as another type,
/// "conv1/kernel/int8", begins with it. A fake_quantize is a QuantizeLinear and a DequantizeLinear,
/// which programs fuse with the int8 layers between them (QDQ). Batch normalizations are of the
/// moving statistics; a dropout is left out.
///
/// Throws Error (input) `[LAYER (TYPE)] expected …, got …` for a layer that has no operators: that
/// of a program, of a TorchScript file, or a recurrent layer whose segments may be several
/// documents; for preprocessing that the network has no input for; for weights that float16 cannot
/// hold; and for `int8_layers` that why_not_int8() (int8_layers.h) refuses, or with weights that
/// are not finite.
Model export_network(const model::Network& network, const NetworkArrays& arrays,
                     const ExportOptions& options = {});

}  // namespace lockstep::onnx

namespace lockstep {

template <>
inline constexpr auto kNamesOf<onnx::WeightStorage> = enum_names<onnx::WeightStorage>(
    {{onnx::WeightStorage::float32, "float32"}, {onnx::WeightStorage::float16, "float16"}});

}  // namespace lockstep
