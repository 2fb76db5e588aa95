// The targets of a batch, and the weights of its samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/model/loss/loss_options.h"

namespace lockstep::inline v0::model {

/// The expected outputs of a batch. The loss determines which of `labels` and `values` is used.
struct Targets {
  /// [samples], 0 .. outputs-1; or for outputs such as [T, V] a class at each position,
  /// [samples, T], 0 .. V-1 or kMasked.
  std::span<const std::int32_t> labels = {};
  std::span<const float> values = {};  ///< [samples, outputs]; any width for a CustomLoss
  /// For samples mixed in pairs (Zhang et al., "mixup", 2018), otherwise empty: the loss is
  /// `weights` times that of `labels` plus 1 - `weights` times that of the partner labels. Accuracy
  /// counts `labels` only. Not for samples of several positions.
  std::span<const std::int32_t> partner_labels = {};  ///< [samples]
  std::span<const float> weights = {};                ///< [samples], 0 to 1
  /// Factors on the loss and on the gradient of each sample, finite and not negative; empty: all
  /// are 1. A sample of weight 0 is masked: even NaN outputs do not affect loss or gradient.
  /// Accuracy counts all samples.
  std::span<const float> sample_weights = {};  ///< [samples], or one for each label
};

/// The number of labels per sample; 1 if they are not evenly divided, or for `values`.
std::int64_t positions_of(const Targets& targets, std::int64_t samples);

/// Throws Error (input) for loss constants out of range. Throws Error (data) unless `targets` fit
/// outputs [samples, width]: a label in 0 .. width-1 for each sample, or a value for each output;
/// and unless the sample weights are finite and not negative. Finite values for a binary or
/// categorical cross-entropy are from 0 to 1, and the latter has at least two outputs. With sparse
/// categorical cross-entropy a sample may have several labels, each kMasked or below width /
/// labels: `positions` labels, or if that is 0 any number that divides the width.
void check_targets(const Loss& loss, std::int64_t samples, std::int64_t width,
                   const Targets& targets, std::int64_t positions = 0);

/// Throws Error (input) unless `weights` is empty, or has a finite weight of at least 0 for each
/// class of a network with `outputs` outputs (row_width()).
void check_class_weights(const Loss& loss, std::int64_t outputs, std::span<const float> weights);

/// Writes the sample weights of `targets`, each times the weight of its class, to `weights`: one
/// for each sample, or for each label of samples of several positions. A sample of several classes
/// (mixup, or a distribution as its target) has the mean of their weights. `class_weights` must fit
/// the loss. check_targets() reports targets that do not fit.
void apply_class_weights(const Targets& targets, std::span<const float> class_weights,
                         std::int64_t samples, std::vector<float>& weights);

}  // namespace lockstep::inline v0::model
