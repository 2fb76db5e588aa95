// Metrics of predicted values.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/model/metrics/metric.h"

namespace lockstep::inline v0::model {

/// Mean absolute error, mean squared error, or its square root, over all outputs of all samples.
enum class ErrorKind { absolute, squared, root };
std::shared_ptr<const Metric> make_error_metric(ErrorKind kind);  ///< "mae", "mse" or "rmse"

/// The coefficient of determination of each of `width` outputs, and the mean over them: 1 minus the
/// squared errors over the squared deviations from the mean. For constant targets: 1 if all outputs
/// match, else 0, as in scikit-learn.
std::shared_ptr<const Metric> make_r2(std::int64_t width);

}  // namespace lockstep::inline v0::model
