// The part of a global batch that one model processes.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/pixels.h"
#include "lockstep/model/loss.h"

namespace lockstep::model {

/// The inputs of one part of a global batch, in host memory owned by the caller. They are features,
/// or uint8 images that are converted to features on the model's device.
struct BatchView {
  std::int64_t samples = 0;                   ///< may be 0: the gradients are then zero
  std::span<const float> features = {};       ///< [samples, input shape...]
  std::span<const std::uint8_t> pixels = {};  ///< [samples, input shape...], instead of features
  /// Applied to the pixels when they are converted to features.
  ChannelNormalization normalization = {};
  Targets targets = {};  ///< targets of the same samples
};

}  // namespace lockstep::model
