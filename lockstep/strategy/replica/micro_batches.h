// Division of a replica's part of a global batch into micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/data/batch.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/model/batch_view.h"
#include "lockstep/model/network.h"

namespace lockstep::strategy {

/// Micro-batches of one replica. Their sizes differ by at most one sample. A part that is ordered
/// by micro-batches (data::Batch::micro_batches) is divided into these.
class MicroBatches {
 public:
  /// At most `accumulate` micro-batches per step, of samples for `network`. `replicas`: the number
  /// in the job, if they normalize together and must therefore all have as many micro-batches as
  /// the one with the most samples; else 0.
  MicroBatches(const model::Network& network, int accumulate, int replicas);

  /// The number of micro-batches of `part`. A part with fewer samples than micro-batches is cut
  /// into single samples; one without any still has one, with which it reports its zero gradient.
  std::int64_t count(const data::Batch& part) const;
  /// The samples of micro-batch `number`; may be empty.
  data::Range range(const data::Batch& part, std::int64_t number) const;
  /// The index of the first sample of micro-batch `number` in the global batch, for random layers.
  /// If the part is ordered by micro-batches, in the global batch in that order.
  std::int64_t first_sample(const data::Batch& part, std::int64_t number) const;

  /// The samples `range` of `part`, which must outlive the view.
  model::BatchView view(const data::Batch& part, data::Range range) const;
  /// All samples of `part`, which must outlive the view.
  model::BatchView view(const data::Batch& part) const { return view(part, {0, part.samples}); }

 private:
  std::size_t feature_count_;  // of a sample
  int accumulate_;
  int replicas_;
};

}  // namespace lockstep::strategy
