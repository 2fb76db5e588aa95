// Metrics of classes: accuracy, precision, recall, F1, confusion matrix, perplexity.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/model/metrics/metric.h"
#include "lockstep/model/metrics/outputs.h"

namespace lockstep::inline v0::model {

/// Fraction of the classifications whose label is among the `k` largest outputs; equal outputs
/// count in the order of their classes. For binary logits k is 1.
std::shared_ptr<const Metric> make_top_k(const ClassReader& reader, std::string name,
                                         std::int64_t k);

/// The score that make_class_score() computes.
enum class ClassScore { precision, recall, f1 };
/// The classes that a score covers. binary: the second of two ("yes"); macro: the mean over all
/// classes that occur among labels or predictions; none: each class.
enum class Average { binary, macro, none };

/// Precision, the fraction of the predictions of a class that are right; recall, the fraction of a
/// class that is predicted; F1, their harmonic mean. 0 for a divisor of 0.
std::shared_ptr<const Metric> make_class_score(const ClassReader& reader, ClassScore score,
                                               Average average);

/// Counts [label, prediction] of all classes.
std::shared_ptr<const Metric> make_confusion(const ClassReader& reader);

/// exp of the mean cross-entropy per sample, or position (token), without label smoothing.
std::shared_ptr<const Metric> make_perplexity(const ClassReader& reader);

}  // namespace lockstep::inline v0::model
