// A LibTorch data loader that returns this rank's part of every batch.
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
#include "lockstep/interop/torch/data/distributed_sampler.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::torch {

/// A view of the first `rows` rows.
inline ::torch::Tensor first_rows(const ::torch::Tensor& batch, std::int64_t rows) {
  return batch.narrow(0, 0, rows);
}
/// Views of the first `rows` samples.
inline ::torch::data::Example<> first_rows(const ::torch::data::Example<>& batch,
                                           std::int64_t rows) {
  return {first_rows(batch.data, rows), first_rows(batch.target, rows)};
}
/// Views of the first `rows` samples.
inline ::torch::data::TensorExample first_rows(const ::torch::data::TensorExample& batch,
                                               std::int64_t rows) {
  return {first_rows(batch.data, rows)};
}

/// Wraps a data set whose batches are tensors, for DistributedSampler with empty_parts. A rank
/// without samples receives a batch of no rows, [0, shape...], made from the first sample by
/// first_rows().
template <typename Inner>
class EmptyParts
    : public ::torch::data::datasets::BatchDataset<EmptyParts<Inner>, typename Inner::BatchType,
                                                   typename Inner::BatchRequestType> {
 public:
  /// `inner` is a mapped data set that ends in a collation.
  explicit EmptyParts(Inner inner) : inner_(std::move(inner)) {}

  /// The batch of these samples; without rows if the only index is kNoSample.
  typename Inner::BatchType get_batch(typename Inner::BatchRequestType indices) override {
    if (indices.size() != 1 || indices[0] != DistributedSampler::kNoSample)
      return inner_.get_batch(indices);
    const std::array<std::size_t, 1> first{0};
    return first_rows(inner_.get_batch(first), 0);
  }
  /// Size of the wrapped data set.
  DistributedSampler::OptionalSize size() const override { return inner_.size(); }

 private:
  Inner inner_;
};

/// torch::data::make_data_loader with a DistributedSampler. `dataset` is a mapped data set that
/// ends in a collation such as Stack<>. `Order` is SequentialSampler, or RandomSampler for a
/// different order in each epoch, keyed by `seed`. `options.batch_size` is the global batch size.
/// If a batch has fewer samples than there are ranks, the ranks without samples receive a batch of
/// no rows. They compute on it like the others, with weight 0; its mean loss is NaN. The first pass
/// starts at the epoch and step of `start`, for resumed programs. Throws Error (input) for a data
/// set without size or samples, and for enforce_ordering(false), because ranks would receive parts
/// of different batches.
///
/// A custom batch type needs a function first_rows(const Batch&, std::int64_t rows) in its
/// namespace that returns its first `rows` samples.
template <typename Order = ::torch::data::samplers::RandomSampler, typename Dataset>
auto make_data_loader(const job::Session& session, Dataset dataset,
                      ::torch::data::DataLoaderOptions options, std::uint64_t seed = 1,
                      const EpochPosition& start = {}) {
  constexpr bool kShuffle = std::is_same_v<Order, ::torch::data::samplers::RandomSampler>;
  static_assert(kShuffle || std::is_same_v<Order, ::torch::data::samplers::SequentialSampler>,
                "expected RandomSampler or SequentialSampler: ranks cannot follow another order");
  const auto require = [](bool fits, const char* expected, const char* actual) {
    if (!fits) throw Error(ErrorCategory::input, "make_data_loader", expected, actual);
  };
  const auto size = dataset.size();
  require(size.has_value(), "expected a data set of known size", "its size() is empty");
  require(options.enforce_ordering(), "expected batches in the same order on all ranks",
          "got enforce_ordering(false)");
  DistributedSampler sampler(session, static_cast<std::int64_t>(*size),
                             {.global_batch = static_cast<std::int64_t>(options.batch_size()),
                              .seed = seed,
                              .shuffle = kShuffle,
                              .drop_last = options.drop_last(),
                              .empty_parts = true});
  sampler.set_position(start);
  options.drop_last(false);  // the loader would compare a part with the global batch size
  return ::torch::data::make_data_loader(EmptyParts<Dataset>(std::move(dataset)),
                                         std::move(sampler), std::move(options));
}

}  // namespace lockstep::inline v0::torch
