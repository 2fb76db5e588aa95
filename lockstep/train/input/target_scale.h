// Standardized targets of a regression.
#pragma once

#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::train {

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
/// targets. Returns whether the network has one output, and `loss` is a squared or absolute error,
/// or Huber's; otherwise nothing changes.
bool scale_targets(const TargetScale& scale, const model::Loss& loss, model::Network& network);

/// Whether the output of the network is that of a model::Rescaling.
bool has_scaled_targets(const model::Network& network);

}  // namespace lockstep::inline v0::train
