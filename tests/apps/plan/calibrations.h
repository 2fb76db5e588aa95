// Calibrations for tests, with round numbers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "apps/lockstep/plan/scaling.h"

namespace lockstep::inline v0::apps {

/// A parameter, and the remaining share of the backward pass when its gradient is ready.
using ReadyParameter = std::pair<std::int64_t, double>;

/// A step of `samples` that takes `seconds`, the last percent of it the update. The backward pass
/// is the part `backward` of the step.
inline BatchTiming timing_with(std::int64_t samples, double seconds, double backward,
                               const std::vector<ReadyParameter>& parameters) {
  BatchTiming timing{
      .samples = samples, .seconds = seconds, .update_seconds = 0.01 * seconds, .lead_seconds = {}};
  for (const auto& [elements, lead] : parameters)
    timing.lead_seconds.push_back(lead * backward * seconds);
  return timing;
}

/// On one core, without costs of sending; `timings` ascending.
inline Calibration calibration_with(const std::vector<ReadyParameter>& parameters,
                                    std::vector<BatchTiming> timings) {
  Calibration calibration{.model = "net",
                          .data = "made-up data",
                          .machine = "host, processor",
                          .elements = {},
                          .parameter_bytes = 4e6,
                          .gradient_bytes = 4e6,
                          .slot_bytes = 8e6,
                          .records = 10'000,
                          .timings = std::move(timings)};
  for (const auto& [elements, lead] : parameters) calibration.elements.push_back(elements);
  return calibration;
}

/// A million parameters; a step takes 1 ms for each sample, and the same for fewer than 8.
inline Calibration plain_calibration() {
  const std::vector<ReadyParameter> parameters{{500'000, 0.9}, {500'000, 0}};
  std::vector<BatchTiming> timings;
  for (const std::int64_t samples : {1, 8, 64, 512})
    timings.push_back(timing_with(samples, 1e-3 * static_cast<double>(samples < 8 ? 8 : samples),
                                  0.6, parameters));
  return calibration_with(parameters, std::move(timings));
}

}  // namespace lockstep::inline v0::apps
