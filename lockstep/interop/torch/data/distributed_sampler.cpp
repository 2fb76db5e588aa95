#include "lockstep/interop/torch/data/distributed_sampler.h"

#include <fmt/format.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::torch {
namespace {

void require(bool fits, const char* expected, const std::string& actual) {
  if (!fits) throw Error(ErrorCategory::input, "distributed_sampler", expected, actual);
}

::torch::Tensor number(std::int64_t value) { return ::torch::tensor(value, ::torch::kInt64); }

std::int64_t read_number(::torch::serialize::InputArchive& archive, const std::string& key) {
  ::torch::Tensor value;
  archive.read(key, value, /*is_buffer=*/true);
  return value.item<std::int64_t>();
}

}  // namespace

DistributedSampler::DistributedSampler(int rank, int ranks, std::int64_t size,
                                       const SamplerOptions& options)
    : rank_(rank), ranks_(ranks), size_(size), options_(options) {
  check();
}

void DistributedSampler::check() const {
  require(options_.global_batch >= 1, "expected a global_batch of at least 1 sample",
          fmt::format("got {}", options_.global_batch));
  require(size_ >= 1, "expected a data set with samples", fmt::format("it has {}", size_));
  require(!options_.drop_last || size_ >= options_.global_batch,
          "expected at least one full batch with drop_last",
          fmt::format("got {} samples in batches of {}", size_, options_.global_batch));
  if (options_.empty_parts) return;
  const std::int64_t smallest = std::min(global_samples(0), global_samples(steps_per_epoch() - 1));
  require(smallest >= ranks_,
          "expected a sample for each rank in every batch, because LibTorch's loader cannot make "
          "an empty batch",
          fmt::format(
              "{} samples in batches of {} on {} ranks leave one of {}: choose another batch size, "
              "drop_last, or lockstep::torch::make_data_loader, which makes empty batches",
              size_, options_.global_batch, ranks_, smallest));
}

void DistributedSampler::reset(OptionalSize new_size) {
  if (!is_placed_) set_epoch(epoch_ + 1);
  if (!new_size) return;
  size_ = static_cast<std::int64_t>(*new_size);
  order_.reset();
  check();
}

void DistributedSampler::set_position(const EpochPosition& position) {
  require(position.epoch >= 0 && position.step >= 0 && position.step <= steps_per_epoch(),
          "expected an epoch of at least 0 and a step within it",
          fmt::format("got epoch {} and step {} with {} steps per epoch", position.epoch,
                      position.step, steps_per_epoch()));
  epoch_ = position.epoch;
  step_ = position.step;
  is_placed_ = true;
  order_.reset();
}

std::int64_t DistributedSampler::steps_per_epoch() const {
  return (options_.drop_last ? size_ : size_ + options_.global_batch - 1) / options_.global_batch;
}

std::int64_t DistributedSampler::global_samples(std::int64_t step) const {
  return std::min(options_.global_batch, size_ - step * options_.global_batch);
}

data::Range DistributedSampler::part(std::int64_t step) const {
  const data::Range in_batch = data::split(global_samples(step), ranks_, rank_);
  const std::int64_t first = step * options_.global_batch;
  return {first + in_batch.begin, first + in_batch.end};
}

DistributedSampler::OptionalIndices DistributedSampler::next(std::size_t batch_size) {
  require(
      static_cast<std::int64_t>(batch_size) == options_.global_batch,
      "expected the loader's batch size to be the global batch, which the sampler cuts into parts",
      fmt::format("the loader requests {}, the sampler was created for {}", batch_size,
                  options_.global_batch));
  is_placed_ = false;
  if (step_ >= steps_per_epoch()) return {};
  if (options_.shuffle && !order_)
    order_.emplace(options_.seed, epoch_, data::OrderShape{.records = size_});
  const data::Range positions = part(step_++);
  Indices indices;
  indices.reserve(static_cast<std::size_t>(positions.size()));
  for (std::int64_t position = positions.begin; position < positions.end; ++position)
    indices.push_back(static_cast<std::size_t>(options_.shuffle ? (*order_)[position] : position));
  if (indices.empty()) indices.push_back(kNoSample);
  return indices;
}

void DistributedSampler::save(::torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", number(epoch_), /*is_buffer=*/true);
  archive.write("step", number(step_), /*is_buffer=*/true);
}

void DistributedSampler::load(::torch::serialize::InputArchive& archive) {
  const std::int64_t epoch = read_number(archive, "epoch");
  set_position({.epoch = epoch, .step = read_number(archive, "step")});
}

}  // namespace lockstep::inline v0::torch
