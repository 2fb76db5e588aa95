// Folds batch normalizations into the layers before them, for inference.
#pragma once

#include <span>
#include <vector>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::model {

/// A network with its arrays.
struct FoldedNetwork {
  Network network;                ///< without the normalizations
  std::vector<float> parameters;  ///< laid out as network.parameters()
  std::vector<float> buffers;     ///< laid out as network.buffers()
};

/// Returns a network for inference only that is equivalent to `network`. Batch normalizations that
/// are the only reader of a convolution or a dense layer are folded into its kernel and bias; the
/// layer keeps its name. A max pooling may be between the two if the normalization multiplies no
/// channel by a negative number. Other layers, the outputs and their names remain. No parameter of
/// the result is frozen. `parameters` and `buffers` are laid out as the tables of `network`.
FoldedNetwork fold_normalizations(const Network& network, std::span<const float> parameters,
                                  std::span<const float> buffers);

}  // namespace lockstep::inline v0::model
