// Helpers for tests of losses: sums, gradients, and differences.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/model/loss/loss.h"

namespace lockstep::inline v0::model {

using Labels = std::vector<std::int32_t>;
using Values = std::vector<float>;

inline MetricSums entropy(const Values& outputs, const Labels& labels, float smoothing = 0) {
  return compute_loss(SparseCategoricalCrossentropy{smoothing}, outputs,
                      static_cast<std::int64_t>(labels.size()), {.labels = labels, .values = {}}, 1,
                      {});
}

inline Values gradient_of(const Loss& loss, const Values& outputs, std::int64_t samples,
                          const Targets& targets, double divisor) {
  Values gradient(outputs.size());
  compute_loss(loss, outputs, samples, targets, divisor, gradient);
  return gradient;
}

/// Central differences of the sum of losses.
inline Values numeric_gradient(const Loss& loss, const Values& outputs, std::int64_t samples,
                               const Targets& targets) {
  constexpr float kStep = 1e-2f;
  Values result;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Values up = outputs;
    Values down = outputs;
    up[i] += kStep;
    down[i] -= kStep;
    const double difference = compute_loss(loss, up, samples, targets, 1, {}).loss_sum -
                              compute_loss(loss, down, samples, targets, 1, {}).loss_sum;
    result.push_back(static_cast<float>(difference / (2 * kStep)));
  }
  return result;
}

}  // namespace lockstep::inline v0::model
