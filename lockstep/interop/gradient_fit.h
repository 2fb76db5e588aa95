// How two gradients of the same step are related.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lockstep/interop/step_recording.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::interop {

/// The factor f for which `actual` is f times `expected`, but for `tolerance` of its norm; nullopt
/// if there is none.
std::optional<double> factor_between(std::span<const double> expected,
                                     std::span<const double> actual, double tolerance);

/// The weight of each rank's gradient `own` in the sum over ranks that equals `expected`, but for
/// `tolerance` of its norm; nullopt if there is none, or too few numbers to tell. Least squares.
/// Collective.
std::optional<std::vector<double>> weights_of(job::Workers& ranks, const std::vector<double>& own,
                                              const std::vector<double>& expected,
                                              double tolerance);

/// Whether a parameter's gradient is orthogonal to its values for each output or each input of a
/// layer. So is that of weights before a normalization over the samples, because scaling them
/// changes nothing.
bool is_scale_invariant(std::span<const job::ObservedParameter> parameters,
                        const ParameterNumbers& values, const ParameterNumbers& gradient);

}  // namespace lockstep::inline v0::interop
