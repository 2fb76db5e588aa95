// Division of a replica's part of a global batch into micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::strategy {

/// The micro-batches of one replica. Their sizes differ by at most one sample. A part with
/// micro-batches (data::Batch::micro_batches) is divided into these.
class MicroBatches {
 public:
  /// At most `accumulate` micro-batches per step, of samples for `network` and `loss`. `replicas`:
  /// the number of replicas of the job if they normalize together, and all need the number of
  /// micro-batches of the one with the most samples; else 0.
  MicroBatches(const model::Network& network, int accumulate, int replicas,
               const model::TotalLoss& loss = {});

  /// The number of micro-batches of `part`. A part with fewer samples than micro-batches is divided
  /// into single samples. An empty part has one micro-batch, which contributes a zero gradient.
  std::int64_t count(const data::Batch& part) const;
  /// The samples of micro-batch `number`; may be empty.
  data::Range range(const data::Batch& part, std::int64_t number) const;
  /// The index of the first sample of micro-batch `number` in the global batch, for random layers.
  /// If the part has micro-batches, the global batch is ordered by them.
  std::int64_t first_sample(const data::Batch& part, std::int64_t number) const;

  /// The samples `range` of `part`, which must outlive the view; valid until the next call. A
  /// network with one input reads the only input of the data, regardless of its name; others match
  /// by name. The same holds for losses and targets; a missing target is empty. Throws Error (data)
  /// for a missing input; the message lists the inputs of both.
  model::BatchView view(const data::Batch& part, data::Range range);
  /// All samples of `part`; see the other view().
  model::BatchView view(const data::Batch& part) { return view(part, {0, part.samples}); }

 private:
  /// A tensor of the data that the network or a loss reads.
  struct Source {
    std::string name;       // empty: the first
    std::size_t place = 0;  // index in the last viewed batch
  };

  static const data::TensorArray* find(const std::vector<data::TensorArray>& arrays, Source& source,
                                       bool is_only);
  model::InputView input(const data::Batch& part, std::size_t index, data::Range range);
  model::Targets targets(const data::Batch& part, std::size_t term, data::Range range);

  std::string network_;         // name of the network
  std::vector<Source> inputs_;  // inputs of the network
  std::vector<Source> terms_;   // targets of each term of the loss
  std::vector<model::InputView> input_views_;
  std::vector<model::Targets> more_targets_;
  int accumulate_;
  int replicas_;
};

}  // namespace lockstep::inline v0::strategy
