// Networks from ONNX graphs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network.h"

namespace lockstep::onnx {

struct Model;

/// A network with the weights of the file it comes from.
struct ImportedNetwork {
  model::Network network;         ///< of layers of the library: model::network_to_json() writes it
  std::vector<float> parameters;  ///< laid out as network.parameters()
  std::vector<float> buffers;     ///< laid out as network.buffers()
};

/// What import_network() may do in more than one way.
struct ImportOptions {
  /// The network gets this name.
  std::string name = "network";
  /// Whether an LSTM or RNN of two biases becomes a layer of both (RecurrentOptions::
  /// recurrent_bias), which trains as the graph does, or of their sum, which computes the same.
  bool keeps_two_biases = true;
};

/// The network that computes what the graph of `model` computes, for any number of samples: the
/// first axis of all inputs and outputs. Images are channels last in the network ([H, W, C]),
/// whatever they are in the graph ([N, C, H, W]), and kernels are transposed; so are weights that
/// read a flattened image. Outputs that are images are channels last. Layers have the names of
/// their weights ("conv1" for "conv1.weight"), or of their nodes. `where`, such as the file,
/// identifies the graph in messages. docs/models.md lists the operators. Throws Error (input) that
/// names the operator and its node for those that are not supported, and for graphs whose shapes
/// are not known but for the number of samples.
ImportedNetwork import_network(const Model& model, std::string_view where,
                               const ImportOptions& options = {});

/// The same from a file, whose name without its ending is that of the network.
ImportedNetwork import_file(const std::filesystem::path& file, bool keeps_two_biases = true);

}  // namespace lockstep::onnx
