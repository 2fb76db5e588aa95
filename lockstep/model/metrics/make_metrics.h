// Metrics by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/model/loss/loss.h"
#include "lockstep/model/metrics/metric.h"

namespace lockstep::inline v0::model {

/// The metrics of a list such as "auc,f1:average=macro,confusion,top3", for `width` outputs under
/// `loss`: row_width() of the network's output, V of [T, V] with a class at each position, where
/// metrics are over all positions that are not masked. Throws Error (input) for an unknown name or
/// option, for a metric that does not fit the loss or the number of outputs, and for a duplicate.
///
/// | names | options | of |
/// |---|---|---|
/// | `accuracy`, `top1`, `top2` … | | classes; `accuracy` of binary logits too |
/// | `precision`, `recall`, `f1` | `average=binary`, `macro`, `none` | classes |
/// | `auc`, `auc_pr` | `exact=true` | two classes |
/// | `confusion`, `perplexity` | | classes |
/// | `mae`, `mse`, `rmse`, `r2` | | values |
///
/// Two classes are one output, the logit of "yes" (binary cross-entropy), or two outputs, the
/// logits of both (categorical cross-entropy).
Metrics make_metrics(std::string_view names, const Loss& loss, std::int64_t width);

/// The loss of the output `output`, [samples, width], as OUTPUT_loss, with the weights of the
/// samples; for a loss of classes also OUTPUT_accuracy.
std::shared_ptr<const Metric> make_loss_metric(std::string output, const Loss& loss,
                                               std::int64_t width);
/// `metric` with "OUTPUT_" before the names of its values.
std::shared_ptr<const Metric> with_output_name(std::string output,
                                               std::shared_ptr<const Metric> metric);

/// "accuracy, top1, top2 …, precision, …", for help texts.
std::string metric_names();

}  // namespace lockstep::inline v0::model
