// A data loader of LibTorch that gives each rank its part of every batch.
#pragma once

#include <torch/data/dataloader.h>
#include <torch/data/example.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>
#include <torch/types.h>

#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/interop/torch/distributed_sampler.h"
#include "lockstep/job/session.h"

namespace lockstep::torch {

/// The first `rows` rows, a view.
inline ::torch::Tensor first_rows(const ::torch::Tensor& batch, std::int64_t rows) { return batch.narrow(0, 0, rows); }
/// The first `rows` samples, views.
inline ::torch::data::Example<> first_rows(const ::torch::data::Example<>& batch, std::int64_t rows) {
  return {first_rows(batch.data, rows), first_rows(batch.target, rows)};
}
/// The first `rows` samples, views.
inline ::torch::data::TensorExample first_rows(const ::torch::data::TensorExample& batch, std::int64_t rows) {
  return {first_rows(batch.data, rows)};
}

/// A data set whose batches are tensors, for DistributedSampler with empty_parts: where a rank has no sample of a batch
/// it makes one of no rows, [0, shape...], from the first sample, by first_rows().
template <typename Inner>
class EmptyParts : public ::torch::data::datasets::BatchDataset<EmptyParts<Inner>, typename Inner::BatchType,
                                                                typename Inner::BatchRequestType> {
 public:
  /// Around a mapped data set that ends in a collation.
  explicit EmptyParts(Inner inner) : inner_(std::move(inner)) {}

  /// The batch of these samples; of no rows where the only index is kNoSample.
  typename Inner::BatchType get_batch(typename Inner::BatchRequestType indices) override {
    if (indices.size() != 1 || indices[0] != DistributedSampler::kNoSample) return inner_.get_batch(indices);
    const std::array<std::size_t, 1> first{0};
    return first_rows(inner_.get_batch(first), 0);
  }
  DistributedSampler::OptionalSize size() const override { return inner_.size(); }  ///< that of the data set within

 private:
  Inner inner_;
};

/// A loader over `dataset`, a mapped one that ends in a collation such as Stack<>: torch::data::make_data_loader with a
/// DistributedSampler. `Order` is SequentialSampler, or RandomSampler: another order in each epoch, keyed by `seed`.
/// `options.batch_size` is the global batch, options.drop_last as usual. A batch that has fewer samples than there are
/// ranks is one of no rows on those that get none: they compute on it like the others, and it counts for nothing. Its
/// mean loss is not a number. The first pass takes the epoch and step of `start`: where a program that goes on had come
/// to. Throws Error (input) for a data set without size or samples, and for enforce_ordering(false), under which ranks
/// would take their parts of different batches at a time.
///
/// A batch type of one's own needs a function first_rows(const Batch&, std::int64_t rows) in its namespace that gives
/// the first `rows` of its samples.
template <typename Order = ::torch::data::samplers::RandomSampler, typename Dataset>
auto make_data_loader(const job::Session& session, Dataset dataset, ::torch::data::DataLoaderOptions options,
                      std::uint64_t seed = 1, const EpochPosition& start = {}) {
  constexpr bool kShuffle = std::is_same_v<Order, ::torch::data::samplers::RandomSampler>;
  static_assert(kShuffle || std::is_same_v<Order, ::torch::data::samplers::SequentialSampler>,
                "needed RandomSampler or SequentialSampler: ranks cannot follow another order");
  const auto require = [](bool fits, const char* needed, const char* given) {
    if (!fits) throw Error(ErrorCategory::input, "make_data_loader", needed, given);
  };
  const auto size = dataset.size();
  require(size.has_value(), "needed a data set of known size", "it does not tell");
  require(options.enforce_ordering(), "needed batches in the same order on all ranks", "got enforce_ordering(false)");
  DistributedSampler sampler(session, static_cast<std::int64_t>(*size),
                             {.global_batch = static_cast<std::int64_t>(options.batch_size()),
                              .seed = seed,
                              .shuffle = kShuffle,
                              .drop_last = options.drop_last(),
                              .empty_parts = true});
  sampler.set_position(start);
  options.drop_last(false);  // it would compare a part with the whole batch
  return ::torch::data::make_data_loader(EmptyParts<Dataset>(std::move(dataset)), std::move(sampler),
                                         std::move(options));
}

}  // namespace lockstep::torch
