// The reference implementation of the losses.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/model/loss_options.h"
#include "lockstep/model/metric_sums.h"
#include "lockstep/model/targets.h"

namespace lockstep::model {

/// Sums of loss and metrics over the samples of `outputs` [samples, width]. If `gradient` (same
/// shape) is not empty, it receives d(weighted sum of losses)/d(outputs) / divisor. If the divisor
/// is the number of samples of the global batch (over the loss scale), the gradients of all
/// replicas add up to the gradient of the mean. Throws Error (data) for a label outside 0 ..
/// width-1 and for a weight outside 0 .. 1.
MetricSums compute_loss(const Loss& loss, std::span<const float> outputs, std::int64_t samples,
                        const Targets& targets, double divisor, std::span<float> gradient);

}  // namespace lockstep::model
