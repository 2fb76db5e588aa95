// Standardized targets of a regression.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::train {

/// Key in the configuration of a checkpoint: what `lockstep evaluate` needs to build the model: the
/// network's "description" (network_json.h), the name of the "loss" and the "label_smoothing".
/// Absent if the network has no description.
inline constexpr const char* kNetworkKey = "network";

/// Mean and deviation of the targets of a data set.
struct TargetScale {
  std::string column;  ///< the name of their column
  double mean = 0;
  double deviation = 1;  ///< that of the population; 1 for equal targets

  /// "price (mean 22.5, deviation 9.2)"
  std::string text() const;
};

/// The scale of the targets of a table with one column of targets, from all of its records; nullopt
/// for other data.
std::optional<TargetScale> target_scale(const data::Dataset& dataset);

/// Appends a model::Rescaling to `network`, so that its layers compute standardized targets, with
/// gradients as of standardized targets; outputs, losses and metrics are in the unit of the
/// targets. Returns whether the network has one output, of a dense layer or a sum, and `loss` is a
/// squared or absolute error, or Huber's; otherwise nothing changes: other outputs, such as those
/// of a sigmoid, have a range of their own.
bool scale_targets(const TargetScale& scale, const model::Loss& loss, model::Network& network);

/// Whether the output of the network is that of a model::Rescaling.
bool has_scaled_targets(const model::Network& network);
/// The scale and offset of the last layer, if that is a model::Rescaling, of the network in the
/// configuration of a checkpoint; else null.
nlohmann::json stored_scale(const nlohmann::json& configuration);

}  // namespace lockstep::inline v0::train
