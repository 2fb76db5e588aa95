// Networks for inference: batch normalizations become part of the layers before them.
#pragma once

#include <span>
#include <vector>

#include "lockstep/model/network.h"

namespace lockstep::model {

/// A network with its arrays.
struct FoldedNetwork {
  Network network;                ///< without the normalizations
  std::vector<float> parameters;  ///< laid out as network.parameters()
  std::vector<float> buffers;     ///< laid out as network.buffers()
};

/// The network that computes in inference what `network` computes, without the batch normalizations
/// of moving statistics that are the only reader of a convolution or a dense layer: that layer gets
/// the scaled kernel and a bias, and keeps its name. A max pooling may be between the two if the
/// normalization multiplies no channel by a negative number. Other layers, the outputs and their
/// names remain. Nothing of the result is frozen, and it is not for training. `parameters` and
/// `buffers` are laid out as the tables of `network`.
FoldedNetwork fold_normalizations(const Network& network, std::span<const float> parameters,
                                  std::span<const float> buffers);

}  // namespace lockstep::model
