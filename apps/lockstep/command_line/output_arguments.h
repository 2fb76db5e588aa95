// Losses and metrics of the outputs of a network: the values of --loss and --metrics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::inline v0::apps {

/// What `--loss` sets: the loss of a network of one output, or the losses of named outputs.
struct LossArguments {
  model::Loss loss = model::SparseCategoricalCrossentropy{};  ///< if there are no `losses`
  std::vector<strategy::OutputLoss> losses = {};              ///< in the order given
  std::vector<std::string> untrained = {};                    ///< outputs with OUTPUT=none
  std::vector<std::string> texts = {"sparse-categorical-crossentropy"};  ///< as they were given

  bool is_given = false;  ///< whether --loss was

  bool is_named() const { return !losses.empty() || !untrained.empty(); }
  /// The loss that says what the classes of the data are to the network: of several the first
  /// categorical one, else the first.
  const model::Loss& of_classes() const;
};

/// Parses the values of all `--loss`: one LOSS, of which the last counts, or OUTPUT=LOSS, with the
/// settings weight=W and target=NAME and those of the loss after a colon, or OUTPUT=none. Throws
/// Error (input), also for an output that is named twice.
LossArguments parse_losses(const std::vector<std::string>& texts);

/// Throws Error (input) unless each output of `network` has a loss, or none on purpose.
void check_losses(const LossArguments& arguments, const model::Network& network);

/// Adds the metrics of `list` to `options`, which have the losses: OUTPUT:NAME is a metric of that
/// output. NAME is one of each output that it fits, as in Keras, and of a single loss always.
/// Throws Error (input) for an output without a loss, for a NAME that fits none, and the errors of
/// model::make_metrics().
void add_metrics(std::string_view list, const model::Network& network,
                 strategy::TrainerOptions& options);

}  // namespace lockstep::inline v0::apps
