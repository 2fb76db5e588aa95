// What the outputs of a network mean under its loss: logits of classes, binary logits, or values.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lockstep/model/loss/loss.h"

namespace lockstep::inline v0::model {

/// How metrics read the outputs [samples, width] of a network.
enum class OutputKind {
  classes,  ///< a logit per class (softmax); targets: labels, or a value per class
  binary,   ///< a logit of "yes" per output (sigmoid); targets: labels or values, yes above 0.5
  values,   ///< numbers; targets: numbers
};

/// The kind of outputs that `loss` expects, from its activation.
OutputKind output_kind(const Loss& loss);

/// Reads the classes of samples, or of the positions of samples with several labels.
struct ClassReader {
  OutputKind kind = OutputKind::classes;
  std::int64_t width = 0;  ///< outputs per sample, or position: row_width()

  /// Number of classes; "no" and "yes" of binary logits.
  std::int64_t classes() const { return kind == OutputKind::binary ? 2 : width; }
  /// Whether there is a score for "yes", or for the second of two classes.
  bool has_scores() const { return classes() == 2; }

  /// The number of classifications in `samples` samples: one per sample or position, or one per
  /// binary logit. Throws Error (input) unless `outputs` has exactly their size.
  std::int64_t count(std::span<const float> outputs, const Targets& targets,
                     std::int64_t samples) const;
  /// The true class of classification `i`; -1 if the sample, or position, has none and does not
  /// count.
  std::int64_t label(const Targets& targets, std::int64_t i) const;
  /// The class with the largest output, the first in case of ties; for a binary logit, "yes" above
  /// 0. For NaN, a class other than `label`: a diverged model is never correct.
  std::int64_t predicted(std::span<const float> outputs, std::int64_t i, std::int64_t label) const;
  /// The logit of the second of two classes: its probability is 1 / (1 + exp(-score)). For NaN, the
  /// worst score for `label`.
  double score(std::span<const float> outputs, std::int64_t i, std::int64_t label) const;
  /// The outputs of sample, or position, `i`.
  std::span<const float> row(std::span<const float> outputs, std::int64_t i) const {
    return outputs.subspan(static_cast<std::size_t>(i * width), static_cast<std::size_t>(width));
  }
};

}  // namespace lockstep::inline v0::model
