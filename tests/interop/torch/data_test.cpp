#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data.h>

#include <unistd.h>

#include <algorithm>

#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "lockstep/interop/torch/data/data_loader.h"
#include "lockstep/interop/torch/data/distributed_sampler.h"
#include "lockstep/interop/torch/save.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::torch {
namespace {

using allreduce::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The indices of `ranks` samplers in one epoch, by step: the whole batch, and the sizes of its
/// parts.
struct Epoch {
  std::vector<std::vector<std::size_t>> batches = {};
  std::vector<std::vector<std::size_t>> sizes = {};
};

Epoch epoch_of(std::vector<DistributedSampler>& samplers, std::int64_t global_batch) {
  Epoch epoch;
  for (DistributedSampler& sampler : samplers) {
    sampler.reset();
    std::size_t step = 0;
    while (auto part = sampler.next(static_cast<std::size_t>(global_batch))) {
      if (epoch.batches.size() == step) {
        epoch.batches.emplace_back();
        epoch.sizes.emplace_back();
      }
      std::erase(*part, DistributedSampler::kNoSample);
      epoch.sizes[step].push_back(part->size());
      epoch.batches[step].insert(epoch.batches[step].end(), part->begin(), part->end());
      ++step;
    }
    EXPECT_EQ(static_cast<std::int64_t>(step), sampler.steps_per_epoch());
  }
  return epoch;
}

std::vector<DistributedSampler> samplers(int ranks, std::int64_t size,
                                         const SamplerOptions& options) {
  std::vector<DistributedSampler> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(rank, ranks, size, options);
  return all;
}

TEST(DistributedSampler, UsesEverySampleOnceWithoutPadding) {
  auto four = samplers(4, 1003, {.global_batch = 64});
  const Epoch epoch = epoch_of(four, 64);
  std::vector<std::size_t> all;
  for (const auto& batch : epoch.batches) all.insert(all.end(), batch.begin(), batch.end());
  std::ranges::sort(all);
  std::vector<std::size_t> expected(1003);
  std::iota(expected.begin(), expected.end(), std::size_t{0});
  EXPECT_EQ(all, expected);
  EXPECT_THAT(epoch.sizes.front(), ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(epoch.sizes.back(), ElementsAre(10, 11, 11, 11));
}

TEST(DistributedSampler, HasTheSameBatchesOnAnyNumberOfRanks) {
  auto one = samplers(1, 100, {.global_batch = 16, .seed = 5});
  auto three = samplers(3, 100, {.global_batch = 16, .seed = 5});
  for (int epoch = 0; epoch < 2; ++epoch)
    EXPECT_EQ(epoch_of(one, 16).batches, epoch_of(three, 16).batches);
}

TEST(DistributedSampler, ShufflesByEpochAndSeed) {
  auto samplers_of_1 = samplers(2, 50, {.global_batch = 50, .seed = 1});
  auto samplers_of_2 = samplers(2, 50, {.global_batch = 50, .seed = 2});
  const auto first = epoch_of(samplers_of_1, 50).batches;
  const auto second = epoch_of(samplers_of_1, 50).batches;
  EXPECT_NE(first, second);
  EXPECT_NE(first, epoch_of(samplers_of_2, 50).batches);
  samplers_of_1[0].set_epoch(0);
  samplers_of_1[1].set_epoch(0);
  EXPECT_EQ(first, epoch_of(samplers_of_1, 50).batches);
}

TEST(DistributedSampler, DropsTheLastBatchIfEnabled) {
  auto two = samplers(2, 50, {.global_batch = 16, .shuffle = false, .drop_last = true});
  const Epoch epoch = epoch_of(two, 16);
  ASSERT_EQ(epoch.batches.size(), 3U);
  EXPECT_EQ(epoch.batches[2].back(), 47U);
}

TEST(DistributedSampler, ResumesFromASavedPosition) {
  DistributedSampler sampler(0, 2, 50, {.global_batch = 8});
  sampler.set_epoch(3);
  sampler.next(8);
  ::torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream stream;
  out.save_to(stream);
  ::torch::serialize::InputArchive in;
  in.load_from(stream);
  DistributedSampler other(0, 2, 50, {.global_batch = 8});
  other.load(in);
  other.reset();  // as a loader does
  EXPECT_EQ(other.epoch(), 3);
  EXPECT_EQ(*other.next(8), *sampler.next(8));
  other.reset();
  EXPECT_EQ(other.epoch(), 4);
}

TEST(DistributedSampler, StartsTheNextEpochAfterAnAbortedPass) {
  DistributedSampler sampler(0, 2, 50, {.global_batch = 8});
  sampler.set_position({.epoch = 2, .step = 7});  // the end of an epoch of seven steps
  sampler.reset();
  EXPECT_FALSE(sampler.next(8));
  sampler.reset();
  EXPECT_EQ(sampler.epoch(), 3);
  EXPECT_TRUE(sampler.next(8));
}

TEST(DistributedSampler, RejectsBatchesThatItCannotSplit) {
  EXPECT_EQ(error_of([] { DistributedSampler(0, 4, 67, {.global_batch = 64}); }),
            "[distributed_sampler] expected a sample for each rank in every batch, because "
            "LibTorch's loader cannot make an empty batch; 67 samples in batches of 64 on 4 ranks "
            "leave one of 3: choose another batch size, drop_last, or "
            "lockstep::torch::make_data_loader, which makes empty batches");
  EXPECT_THAT(error_of([] { DistributedSampler(0, 1, 10, {}); }),
              HasSubstr("expected a global_batch of at least 1"));
  EXPECT_THAT(error_of([] { DistributedSampler(0, 1, 0, {.global_batch = 2}); }),
              HasSubstr("it has 0"));
  EXPECT_THAT(
      error_of([] { DistributedSampler(0, 1, 3, {.global_batch = 4, .drop_last = true}); }),
      HasSubstr("expected at least one full batch with drop_last, got 3 samples in batches of 4"));
  DistributedSampler sampler(0, 2, 50, {.global_batch = 8});
  EXPECT_THAT(error_of([&] { sampler.set_position({.epoch = 1, .step = 8}); }),
              HasSubstr("expected an epoch of at least 0 and a step within it, got epoch 1 and "
                        "step 8 with 7 steps per epoch"));
  EXPECT_THAT(error_of([&] { sampler.next(4); }),
              HasSubstr("the loader requests 4, the sampler was created for 8"));
}

struct Numbers : ::torch::data::datasets::Dataset<Numbers> {
  explicit Numbers(std::size_t count_) : count(count_) {}
  ::torch::data::Example<> get(std::size_t index) override {
    return {::torch::full({3}, static_cast<float>(index)),
            ::torch::tensor(static_cast<std::int64_t>(index))};
  }
  DistributedSampler::OptionalSize size() const override { return count; }
  std::size_t count;
};

/// Targets of all batches of two epochs on a session of one rank, with `workers` threads.
std::vector<std::int64_t> targets_of(std::size_t workers, const EpochPosition& start = {}) {
  const job::Session session({.quiet = true});
  auto loader = make_data_loader(session, Numbers(23).map(::torch::data::transforms::Stack<>()),
                                 ::torch::data::DataLoaderOptions(5).workers(workers), 7, start);
  std::vector<std::int64_t> all;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : *loader)
      for (std::int64_t i = 0; i < batch.target.size(0); ++i)
        all.push_back(batch.target[i].item<std::int64_t>());
  return all;
}

TEST(DataLoader, ReturnsTheSameBatchesForAnyNumberOfThreads) {
  const auto alone = targets_of(0);
  EXPECT_EQ(alone.size(), 46U);
  EXPECT_EQ(std::set<std::int64_t>(alone.begin(), alone.begin() + 23).size(), 23U);
  EXPECT_EQ(alone, targets_of(3));
}

TEST(DataLoader, ResumesWithinAnEpoch) {
  const auto all = targets_of(0);
  for (const std::size_t workers : {0U, 3U}) {
    const auto rest = targets_of(workers, {.step = 3});
    EXPECT_EQ(std::vector(all.begin() + 15, all.end()), rest);
  }
}

TEST(DataLoader, RejectsUnorderedBatches) {
  const job::Session session({.quiet = true});
  EXPECT_THAT(error_of([&] {
                make_data_loader(session, Numbers(23).map(::torch::data::transforms::Stack<>()),
                                 ::torch::data::DataLoaderOptions(5).enforce_ordering(false));
              }),
              HasSubstr("[make_data_loader] expected batches in the same order on all ranks"));
}

TEST(DataLoader, ReturnsAnEmptyBatchToRanksWithoutSamples) {
  EmptyParts empty(Numbers(4).map(::torch::data::transforms::Stack<>()));
  const std::vector<std::size_t> no_samples{DistributedSampler::kNoSample};
  const auto batch = empty.get_batch(no_samples);
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(batch.target.sizes().vec(), (std::vector<std::int64_t>{0}));
}

TEST(Save, WritesOnlyTheFile) {
  const job::Session session({.quiet = true});
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep_torch_save_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  save(session, ::torch::ones({2}), folder / "net.pt");
  at::Tensor read;
  ::torch::load(read, (folder / "net.pt").string());
  EXPECT_TRUE(::torch::equal(read, ::torch::ones({2})));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(error_of([&] { save(session, ::torch::ones({2}), folder / "net.pt"); }),
              HasSubstr(folder.string()));
}

}  // namespace
}  // namespace lockstep::inline v0::torch
