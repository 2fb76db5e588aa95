// Areas under the curves of a classifier with two classes.
#pragma once

#include <memory>

#include "lockstep/model/metrics/metric.h"
#include "lockstep/model/metrics/outputs.h"

namespace lockstep::inline v0::model {

/// Recall over the false-positive rate, or precision over recall.
enum class Curve { roc, precision_recall };

/// The area at 200 thresholds of the probability, as the AUC of Keras: 0, 1/199 … 1, trapezoids for
/// `roc`, and the interpolation of Davis and Goadrich (ICML 2006) for `precision_recall`. Exact
/// counts. NaN if there is only one class. `reader` must have scores.
std::shared_ptr<const Metric> make_auc(const ClassReader& reader, Curve curve);

/// The exact area from the scores of all samples, which are kept (16 bytes each) and gathered on
/// every rank: the probability that a sample of the second class has a higher score than one of the
/// first (a tie counts half), or the average precision, as roc_auc_score() and
/// average_precision_score() of scikit-learn.
std::shared_ptr<const Metric> make_exact_auc(const ClassReader& reader, Curve curve);

}  // namespace lockstep::inline v0::model
