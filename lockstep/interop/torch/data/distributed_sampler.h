// Splits every batch between ranks, for torch::data::make_data_loader.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/order/epoch_order.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::torch {

/// Options of DistributedSampler, the same on all ranks.
struct SamplerOptions {
  std::int64_t global_batch = 0;  ///< samples of a step over all ranks
  std::uint64_t seed = 1;         ///< key of the order, together with the epoch
  bool shuffle = true;            ///< false: every epoch is in index order
  bool drop_last = false;         ///< whether to drop an incomplete last batch
  /// If the last batch has fewer samples than there are ranks: true returns the single index
  /// kNoSample to ranks without samples, for a data set that supports it (EmptyParts); false makes
  /// the constructor throw.
  bool empty_parts = false;
};

/// A position in training: `step` steps of `epoch` are complete.
struct EpochPosition {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t step = 0;   ///< from 0 to the steps of an epoch
};

/// Returns this rank's part of every global batch. The order of an epoch is a permutation of all
/// samples that depends on (seed, epoch) only. Each run of `global_batch` samples is cut into
/// contiguous parts whose sizes differ by at most one. So all ranks make the same number of steps,
/// every sample is used once, nothing is padded, and a step has the same samples as in one process.
///
/// Pass the *global* batch size to the loader; it receives this rank's part. The loader calls
/// reset() at the start of each pass, which moves to the next epoch. The first pass, and the first
/// pass after set_position(), set_epoch() or load(), starts at the current position instead. Do not
/// use the loader's own drop_last: it would drop all parts, which are smaller than its batch size.
/// Use SamplerOptions::drop_last.
class DistributedSampler : public ::torch::data::samplers::Sampler<> {
 public:
  using Indices = std::vector<std::size_t>;  ///< Indices of samples.
  /// nullopt at the end of the epoch.
  using OptionalIndices = decltype(std::declval<::torch::data::samplers::Sampler<>&>().next(1));
  /// The size of a data set.
  using OptionalSize =
      decltype(std::declval<const ::torch::data::datasets::BatchDataset<void>&>().size());

  /// Stands for no sample (SamplerOptions::empty_parts).
  static constexpr std::size_t kNoSample = static_cast<std::size_t>(-1);

  /// For this rank of `session` and a data set of `size` samples, the same on all ranks. Throws
  /// Error (input), the same on all ranks, for options out of range.
  DistributedSampler(const job::Session& session, std::int64_t size, const SamplerOptions& options)
      : DistributedSampler(session.rank(), session.size(), size, options) {}
  /// As above, for rank `rank` of `ranks`.
  DistributedSampler(int rank, int ranks, std::int64_t size, const SamplerOptions& options);

  /// Moves to the start of the next epoch; does nothing if next() has not been called since the
  /// sampler was created or its position was set. `new_size`: a new number of samples.
  void reset(OptionalSize new_size = {}) override;
  /// This rank's part of the next global batch; nullopt at the end of the epoch. Throws Error
  /// (input) unless `batch_size` is the global batch size.
  OptionalIndices next(std::size_t batch_size) override;
  /// Saves the epoch and the position in it.
  void save(::torch::serialize::OutputArchive& archive) const override;
  /// Continues from the position of save(), also in a loader that is created with this sampler
  /// afterwards. A loader requests batches ahead, so a program that resumes should set the position
  /// of its own loop with set_position().
  void load(::torch::serialize::InputArchive& archive) override;

  std::int64_t epoch() const { return epoch_; }  ///< the current epoch
  /// Moves to the start of `epoch`.
  void set_epoch(std::int64_t epoch) { set_position({.epoch = epoch}); }
  /// Moves to a position: the next batch is that of step `position.step`, from 0. Throws Error
  /// (input) if the step is out of range.
  void set_position(const EpochPosition& position);
  /// Steps per epoch, the same on all ranks.
  std::int64_t steps_per_epoch() const;
  /// This rank's number of samples in `step`.
  std::int64_t samples(std::int64_t step) const { return part(step).size(); }
  /// Number of samples of all ranks in `step`.
  std::int64_t global_samples(std::int64_t step) const;

 private:
  void check() const;
  data::Range part(std::int64_t step) const;  // positions in the epoch's order

  int rank_;
  int ranks_;
  std::int64_t size_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t step_ = 0;
  bool is_placed_ = true;                  // next() was not called since the position was set
  std::optional<data::EpochOrder> order_;  // order of epoch_, created when needed
};

}  // namespace lockstep::inline v0::torch
