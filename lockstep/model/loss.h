// What training minimizes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "lockstep/model/metric.h"

namespace lockstep::model {

/// Cross-entropy between softmax(logits) and class labels, with label smoothing: the target of the true class is 1 - s
/// + s/K, of the others s/K (Szegedy et al., CVPR 2016).
struct SparseCategoricalCrossentropy {
  float label_smoothing = 0;  ///< part of the target that is spread over all classes, from 0 to less than 1
};

/// Mean over the outputs of one sample of the squared difference to its targets.
struct MeanSquaredError {};

using Loss = std::variant<SparseCategoricalCrossentropy, MeanSquaredError>;  ///< What a training makes small.

std::string to_string(const Loss& loss);  ///< its name, as network descriptions and checkpoints have it

/// What the samples of a batch should have given. One of the two is used, depending on the loss.
struct Targets {
  std::span<const std::int32_t> labels = {};  ///< [samples], 0 .. outputs-1
  std::span<const float> values = {};         ///< [samples, outputs]
  /// Of samples that are mixed in pairs (Zhang et al., "mixup", 2018), else empty: the loss is weights times that of
  /// `labels` and 1 - weights times that of these. Accuracy is that of `labels` alone.
  std::span<const std::int32_t> partner_labels = {};  ///< [samples]
  std::span<const float> weights = {};                ///< [samples], 0 to 1
};

/// Throws Error (input) for constants of the loss out of their range, Error (data) unless `targets` fit outputs
/// [samples, width]: a label for each sample, in 0 .. width-1, or a value for each output.
void check_targets(const Loss& loss, std::int64_t samples, std::int64_t width, const Targets& targets);

/// Sums of loss and metrics over the samples of `outputs` [samples, width]. Where `gradient` (same shape) is not empty
/// it receives d(sum of losses)/d(outputs) / divisor: dividing by the number of samples of the global batch (over the
/// loss scale) makes gradients of all replicas add up to the gradient of the mean. Throws Error (data) for a label
/// outside 0 .. width-1, and for a weight outside 0 .. 1.
MetricSums compute_loss(const Loss& loss, std::span<const float> outputs, std::int64_t samples, const Targets& targets,
                        double divisor, std::span<float> gradient);

}  // namespace lockstep::model
