// One part of a global batch as a model takes it.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/pixels.h"
#include "lockstep/model/loss.h"

namespace lockstep::model {

/// Inputs of one part of a global batch, in host memory that is the caller's: features, or images of uint8 that become
/// features on the model's device.
struct BatchView {
  std::int64_t samples = 0;                   ///< may be 0: then the gradients are zero
  std::span<const float> features = {};       ///< [samples, input shape...]
  std::span<const std::uint8_t> pixels = {};  ///< [samples, input shape...], in the place of features
  ChannelNormalization normalization = {};    ///< of the pixels, once they are features
  Targets targets = {};                       ///< of the same samples
};

}  // namespace lockstep::model
