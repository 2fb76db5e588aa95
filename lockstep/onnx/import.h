// Networks from ONNX graphs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::onnx {

struct Model;

/// A network with the weights of an ONNX file.
struct ImportedNetwork {
  model::Network network;         ///< built-in layers only: model::network_to_json() can write it
  std::vector<float> parameters;  ///< laid out as network.parameters()
  std::vector<float> buffers;     ///< laid out as network.buffers()
};

/// Options of import_network().
struct ImportOptions {
  /// Name of the network.
  std::string name = "network";
  /// Whether an LSTM or RNN with two biases keeps both (RecurrentOptions::recurrent_bias), as in
  /// training the original, or uses their sum, which computes the same outputs.
  bool keeps_two_biases = true;
  /// The inputs of the data, whose extents take the place of those that the file leaves free: by
  /// name, or the only one. Images are [H, W, C].
  std::vector<model::NetworkInput> inputs = {};
};

/// The network that computes what the graph of `model` computes, for any number of samples: the
/// first axis of all inputs and outputs. Images are channels last in the network ([H, W, C]), not
/// channels first as in the graph ([N, C, H, W]); kernels, and weights that read a flattened image,
/// are transposed. Outputs that are images are channels last. Layers are named after their weights
/// ("conv1" for "conv1.weight"), or after their nodes. `where`, such as the file, identifies the
/// graph in messages. docs/models.md lists the operators. Throws Error (input) that names the
/// operator and its node for unsupported operators, and for graphs with unknown extents other than
/// the number of samples.
ImportedNetwork import_network(const Model& model, std::string_view where,
                               const ImportOptions& options = {});

/// Imports a file. The network has the name of the file without its extension.
ImportedNetwork import_file(const std::filesystem::path& file, ImportOptions options = {});

}  // namespace lockstep::inline v0::onnx
