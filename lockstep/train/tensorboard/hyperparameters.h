// Hyperparameters and results of a training, for TensorBoard's HParams page.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

inline constexpr std::string_view kHyperparametersPlugin = "hparams";  ///< TensorBoard's plugin
/// Tag of session_start().
inline constexpr std::string_view kSessionStartTag = "_hparams_/session_start_info";
/// Tag of session_end().
inline constexpr std::string_view kSessionEndTag = "_hparams_/session_end_info";

/// The content of kSessionStartTag: a tensorboard.hparams.HParamsPluginData message. `time`:
/// seconds since 1970.
std::string session_start(std::span<const Hyperparameter> values, double time);
/// The content of kSessionEndTag for a complete training.
std::string session_end(double time);

}  // namespace lockstep::inline v0::train
