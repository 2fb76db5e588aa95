// From a network and its weights to ONNX.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
  /// Of each column of an input [columns]: (x - offset) / divisor in double, 0 for a divisor of 0.
  /// Empty: none.
  std::vector<double> offsets = {};
  std::vector<double> divisors = {};  ///< as many
};

/// How a network is exported.
struct ExportOptions {
  /// Whether batch normalizations become part of the convolutions and dense layers before them.
  bool fold = true;
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
/// operator that of its layer. Batch normalizations are of the moving statistics; a dropout is left
/// out.
///
/// Throws Error (input) `[LAYER (TYPE)] expected …, got …` for a layer that has no operators: that
/// of a program, of a TorchScript file, or a recurrent layer whose segments may be several
/// documents; and for preprocessing that the network has no input for.
Model export_network(const model::Network& network, const NetworkArrays& arrays,
                     const ExportOptions& options = {});

}  // namespace lockstep::onnx
