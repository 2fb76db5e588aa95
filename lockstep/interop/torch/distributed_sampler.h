// Which samples each rank takes of every batch, for torch::data::make_data_loader.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/order/batch_split.h"
#include "lockstep/data/order/epoch_order.h"
#include "lockstep/job/session.h"

namespace lockstep::torch {

/// All ranks give the same.
struct SamplerOptions {
  std::int64_t global_batch = 0;  ///< samples of a step over all ranks
  std::uint64_t seed = 1;         ///< keys the order, with the epoch
  bool shuffle = true;            ///< else every epoch is in index order
  bool drop_last = false;         ///< leaves out a last batch that is smaller than the others
  /// What to do where the last batch has fewer samples than there are ranks, so that some get none: true gives them the
  /// one index kNoSample, for a data set that knows it (EmptyParts); false refuses such a division when it is made.
  bool empty_parts = false;
};

/// A place in the order of all epochs: `step` steps of `epoch` are done.
struct EpochPosition {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t step = 0;   ///< from 0 to the steps of an epoch
};

/// This rank's part of every global batch. The order of an epoch is a permutation of all samples that depends on (seed,
/// epoch) alone; each `global_batch` of it are cut into contiguous parts whose sizes differ by at most one. So all
/// ranks take the same number of steps, every sample is taken once, nothing is padded, and a step has the samples that
/// one process would take.
///
/// A loader is given the *global* batch size: its request for a batch is answered with this rank's part. It calls
/// reset() at the start of each pass, which moves to the next epoch, but for the first pass and the first one after
/// set_position(), set_epoch() or load(): that one takes the epoch that was set, from there on. Its own option
/// drop_last would see parts smaller than its batch and drop them all: use the one here.
class DistributedSampler : public ::torch::data::samplers::Sampler<> {
 public:
  using Indices = std::vector<std::size_t>;  ///< What a loader asks a data set for.
  /// Nothing at the end of the epoch.
  using OptionalIndices = decltype(std::declval<::torch::data::samplers::Sampler<>&>().next(1));
  /// As data sets tell it.
  using OptionalSize = decltype(std::declval<const ::torch::data::datasets::BatchDataset<void>&>().size());

  /// Stands for no sample (SamplerOptions::empty_parts).
  static constexpr std::size_t kNoSample = static_cast<std::size_t>(-1);

  /// For the rank that `session` is, of a data set of `size` samples, the same on all ranks. Throws Error (input) for
  /// options out of range, the same on all ranks.
  DistributedSampler(const job::Session& session, std::int64_t size, const SamplerOptions& options)
      : DistributedSampler(session.rank(), session.size(), size, options) {}
  /// The same for rank `rank` of `ranks`.
  DistributedSampler(int rank, int ranks, std::int64_t size, const SamplerOptions& options);

  /// The next epoch, from its start; a call before any next() since the sampler was made or given a position leaves it
  /// where it is. `new_size`: another number of samples.
  void reset(OptionalSize new_size = {}) override;
  /// This rank's part of the next global batch; nothing at the end of the epoch. `batch_size` is the global batch:
  /// throws Error (input) for another one.
  OptionalIndices next(std::size_t batch_size) override;
  /// Epoch and position in it.
  void save(::torch::serialize::OutputArchive& archive) const override;
  /// Goes on where save() stood, also in a loader that is made with it then. A loader asks ahead of the batches that it
  /// gives out: what a program is to go on with is the position of its own loop, set_position().
  void load(::torch::serialize::InputArchive& archive) override;

  std::int64_t epoch() const { return epoch_; }  ///< that is under way
  /// Begins `epoch` anew.
  void set_epoch(std::int64_t epoch) { set_position({.epoch = epoch}); }
  /// Goes on from there: the next batch is that of step `position.step`, from 0. Throws Error (input) for a step that
  /// epochs do not have.
  void set_position(const EpochPosition& position);
  /// Steps of an epoch, the same on all ranks.
  std::int64_t steps_per_epoch() const;
  /// Samples of `step` in the epoch that this rank takes, and those that all ranks take together.
  std::int64_t samples(std::int64_t step) const { return part(step).size(); }
  std::int64_t global_samples(std::int64_t step) const;  ///< samples of `step` that all ranks take together

 private:
  void check() const;
  data::Range part(std::int64_t step) const;  // positions in the epoch's order

  int rank_;
  int ranks_;
  std::int64_t size_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t step_ = 0;
  bool is_placed_ = true;                  // nothing was taken since the position was set
  std::optional<data::EpochOrder> order_;  // of epoch_, once it is needed
};

}  // namespace lockstep::torch
