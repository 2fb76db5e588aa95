// The part of a global batch that one model processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/pixels.h"
#include "lockstep/model/loss/loss.h"

namespace lockstep::inline v0::model {

/// One input of a network for one part of a global batch: one array [samples, input shape...] in
/// host memory owned by the caller. An int32 input has indices; others have features, or uint8
/// images that the device converts to features.
struct InputView {
  std::span<const float> features = {};        ///< values of a float32 input
  std::span<const std::uint8_t> pixels = {};   ///< instead of features
  std::span<const std::int32_t> indices = {};  ///< values of an int32 input
  /// Applied to the pixels when they are converted to features.
  ChannelNormalization normalization = {};
};

/// The part of a global batch that one model processes.
struct BatchView {
  std::int64_t samples = 0;  ///< may be 0: the gradients are then zero
  // The input of a network that has one.
  std::span<const float> features = {};        ///< as in InputView
  std::span<const std::uint8_t> pixels = {};   ///< as in InputView
  std::span<const std::int32_t> indices = {};  ///< as in InputView
  ChannelNormalization normalization = {};     ///< as in InputView
  Targets targets = {};                        ///< targets of the same samples
  /// Targets of the further terms of a TotalLoss, with the same sample weights.
  std::span<const Targets> more_targets = {};
  /// All inputs, in the order of Network::inputs(), instead of the four above.
  std::span<const InputView> inputs = {};

  /// The targets of the term with this index.
  const Targets& targets_of(std::size_t term) const {
    return term == 0 ? targets : more_targets[term - 1];
  }
  std::size_t input_count() const { return inputs.empty() ? 1 : inputs.size(); }  ///< at least 1
  /// The input with this index.
  InputView input(std::size_t index) const {
    if (inputs.empty()) return {features, pixels, indices, normalization};
    return inputs[index];
  }
};

}  // namespace lockstep::inline v0::model
