// The reference implementation of the losses.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/loss/loss_options.h"
#include "lockstep/model/loss/metric_sums.h"
#include "lockstep/model/loss/targets.h"

namespace lockstep::inline v0::model {

/// The loss of one output of a network.
struct LossTerm {
  Loss loss = SparseCategoricalCrossentropy{};  ///< the loss function
  std::size_t output = 0;                       ///< index in Network::outputs()
  std::string target = {};                      ///< name in the data set; empty: its first target
  float weight = 1;                             ///< factor on the loss and its gradient, above 0
};

/// What training minimizes: the sum of the losses of one or more outputs. A single loss applies to
/// the first output.
class TotalLoss {
 public:
  TotalLoss() : terms_(1) {}  ///< sparse categorical cross-entropy of the first output
  /// `loss` of the first output.
  template <std::convertible_to<Loss> T>
  TotalLoss(T loss) : terms_{{.loss = std::move(loss)}} {}
  /// `terms`: at least one, each for a different output.
  explicit TotalLoss(std::vector<LossTerm> terms) : terms_(std::move(terms)) {}

  std::span<const LossTerm> terms() const { return terms_; }  ///< at least one
  /// The term with this index. The first one has the accuracy of MetricSums.
  const LossTerm& operator[](std::size_t index) const { return terms_[index]; }

 private:
  std::vector<LossTerm> terms_;
};

/// Consecutive rows of a batch: samples, or with several labels for each sample their positions.
struct RowRange {
  std::int64_t first = 0;  ///< index in the batch
  std::int64_t count = 0;  ///< number of rows; 0: all
  std::int64_t width = 0;  ///< leading outputs of a row that count; 0: all
};

/// Sums of loss and metrics over the samples of `outputs` [samples, width], or with several labels
/// for each sample over the positions of [samples, positions, width]. If `gradient` (same shape) is
/// not empty, it receives d(weighted sum of losses)/d(outputs) / divisor. If the divisor is the
/// number of samples, or positions, of the global batch (over the loss scale), the gradients of all
/// replicas add up to the gradient of the mean. Throws Error (data) for a label outside 0 ..
/// width-1 and for a weight outside 0 .. 1.
MetricSums compute_loss(const Loss& loss, std::span<const float> outputs, std::int64_t samples,
                        const Targets& targets, double divisor, std::span<float> gradient);
/// The contribution of `rows`, with their `outputs` [rows, width], to the sums and the gradient.
/// `gradient` may alias `outputs`. The call with row 0 counts the samples of the batch. `targets`
/// are those of all rows and must have been checked.
MetricSums compute_loss(const SparseCategoricalCrossentropy& loss, std::span<const float> outputs,
                        const RowRange& rows, std::int64_t samples, const Targets& targets,
                        double divisor, std::span<float> gradient);

}  // namespace lockstep::inline v0::model
