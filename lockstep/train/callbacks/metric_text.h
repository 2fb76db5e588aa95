// Values of metrics as text: numbers on a line, tables of classes, confusion matrices.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/metrics/metric.h"

namespace lockstep::inline v0::train {

/// Formats a number in at most eight characters, if possible: "0.5000", "12345.6".
std::string metric_text(double value);

/// Returns the double with the shortest decimal form of `value`: 0.001, not 0.0010000000474974513.
double shortest(float value);

/// Formats the single numbers: "auc 0.9100, f1 0.8800". Empty if there are none.
std::string metric_line(std::span<const model::MetricValue> values);

/// Formats the other values, at most 80 columns wide; empty if there are none. Numbers per class:
/// one line per class, or the ten lowest of more than 20 classes. A confusion matrix: the matrix
/// with the labels as rows or, if that is too wide, the ten most frequent confusions. Classes
/// without a name are shown by number. `class_names` apply to the metrics of `output`, or to all if
/// it is empty.
std::string metric_tables(std::span<const model::MetricValue> values,
                          const std::vector<std::string>& class_names,
                          std::string_view output = {});

}  // namespace lockstep::inline v0::train
