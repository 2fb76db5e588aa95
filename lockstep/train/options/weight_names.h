// The weights of a network with Lockstep's or PyTorch's names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::train {

/// An array of a network in a file of weights.
struct NamedWeight {
  std::string name;  ///< name in the file
  model::Shape
      shape;  ///< shape in the file: [O, C, H, W] or [O, C, T] for the kernel of a convolution
  /// If not 0, the number C of channels: the values of each output are channels first in the file,
  /// channels last in the network.
  std::int64_t channels = 0;
  std::string layer;        ///< layer of the network
  std::span<float> values;  ///< values in the network
  /// Whether a matrix [outputs, inputs] of the network is [inputs, outputs] in the file.
  bool transposed = false;
  /// Whether the values of the file are added to those of the network, which have been set from
  /// another array of the file.
  bool is_addend = false;

  /// Sets `values` from the values `from` of the file. Excess rows at the end of the file are
  /// ignored.
  void set(std::span<const float> from) const;
  /// Returns the values for a file: in its layout, and zeros for an addend.
  std::vector<float> stored() const;
};

/// Returns all weights of `network` in the order of the layers, with Lockstep's names:
/// "conv1/kernel". `parameters` and `buffers` are the flat arrays of the network.
std::vector<NamedWeight> own_weights(const model::Network& network, std::span<float> parameters,
                                     std::span<float> buffers);

/// Returns all weights with the names and the layout of PyTorch, as in torchvision: "conv1.weight"
/// [O, I, H, W] for "conv1/kernel" [O, H, W, I], "weight", "bias", "running_mean", "running_var"
/// for gamma, beta, moving_mean, moving_variance, and "weight" for embeddings. The rows of a layer
/// "pos_embed" have that name and the shape [1, T, D], as in timm; if the network has a layer
/// "cls_token" (zoo::vit), an array of that name [1, 1, D] is an addend of the first row. The
/// kernels of dense layers that read a flattened image are reordered, because PyTorch flattens
/// channels first. A reshape that keeps the channels moves nothing: its rows are positions. Throws
/// Error (checkpoint) with `where` if other layers than dense, dropout, relu and PointwiseLayer
/// read a flattened image; `file` is for the message.
std::vector<NamedWeight> torch_weights(const model::Network& network, std::span<float> parameters,
                                       std::span<float> buffers, std::string_view where,
                                       std::string_view file);

}  // namespace lockstep::inline v0::train
