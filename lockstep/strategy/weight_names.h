// The weights of a network by Lockstep's names, or by PyTorch's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network.h"

namespace lockstep::strategy {

/// An array of a network in a file of weights.
struct NamedWeight {
  std::string name;    ///< in the file
  model::Shape shape;  ///< in the file: [O, C, H, W] or [O, C, T] for the kernel of a convolution
  /// If not 0, the values of each output are channels first, C of them, in the file, and channels
  /// last in the network.
  std::int64_t channels = 0;
  std::string layer;        ///< of the network
  std::span<float> values;  ///< in the network
  /// Whether a matrix [outputs, inputs] of the network is [inputs, outputs] in the file.
  bool transposed = false;

  /// Sets `values` from all of the file; of more rows than the network has, from the first ones.
  void set(std::span<const float> from) const;
  /// The values as in the file, likewise.
  std::vector<float> channels_first() const;
};

/// All weights of `network`, whose flat arrays are given, in the order of the layers, with their
/// own names: "conv1/kernel".
std::vector<NamedWeight> own_weights(const model::Network& network, std::span<float> parameters,
                                     std::span<float> buffers);

/// The same with the names and the layout of PyTorch, as of torchvision's networks: "conv1.weight"
/// [O, I, H, W] for "conv1/kernel" [O, H, W, I], "weight", "bias", "running_mean", "running_var"
/// for gamma, beta, moving_mean, moving_variance, and "weight" for embeddings. The kernels of dense
/// layers that read a flattened image are reordered, because PyTorch flattens channels first.
/// Throws Error (checkpoint) of `where` if other layers than dense, dropout, relu and
/// PointwiseLayer read one; `file` is for the message.
std::vector<NamedWeight> torch_weights(const model::Network& network, std::span<float> parameters,
                                       std::span<float> buffers, std::string_view where,
                                       std::string_view file);

}  // namespace lockstep::strategy
