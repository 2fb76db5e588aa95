#include "lockstep/data/order/batch_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;

/// The sizes of a replica's shares, step by step.
std::vector<std::int64_t> sizes(const BatchPlan& plan, int replica) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step)
    sizes.push_back(plan.share(step, replica).positions.size());
  return sizes;
}

TEST(MicroBatchOrder, DoesNotDependOnTheDivisionOfAGlobalBatch) {
  constexpr std::int64_t kSamples = 13;
  for (const std::int64_t count : {1, 2, 3, 5, 13}) {
    for (const std::int64_t parts : {1, 2, 4, 20}) {
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range samples = split(kSamples, parts, part);
        const MicroBatchOrder order(samples, count);
        EXPECT_EQ(order.range(0).begin, 0);
        EXPECT_EQ(order.range(count - 1).end, samples.size());
        for (std::int64_t number = 1; number < count; ++number)
          EXPECT_EQ(order.range(number).begin, order.range(number - 1).end);
        std::vector<std::int64_t> next;  // positions, by micro-batch
        for (std::int64_t number = 0; number < count; ++number)
          next.push_back(order.range(number).begin);
        for (std::int64_t sample = samples.begin; sample < samples.end; ++sample)
          EXPECT_EQ(order.position(sample), next[static_cast<std::size_t>(sample % count)]++)
              << sample << " of " << parts << " parts in " << count << " micro-batches";
        for (std::int64_t number = 0; number < count; ++number)
          EXPECT_EQ(next[static_cast<std::size_t>(number)], order.range(number).end);
      }
    }
  }
}

/// The positions of a worker's replicas, batch by batch, as tf.distribute's tests list them.
std::vector<std::vector<std::int64_t>> batches(const BatchPlan& plan, ReplicaLayout layout,
                                               int worker) {
  std::vector<std::vector<std::int64_t>> batches;
  for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
    for (int local = 0; local < layout.per_worker; ++local) {
      const Range range = plan.share(step, worker * layout.per_worker + local).positions;
      batches.emplace_back();
      for (std::int64_t position = range.begin; position < range.end; ++position)
        batches.back().push_back(position);
    }
  }
  return batches;
}

BatchPlan own_sequences(std::vector<std::int64_t> records, std::int64_t global_batch,
                        ReplicaLayout layout) {
  return {ShardPolicy::file, std::move(records), global_batch, layout};
}

// The examples of batch_sizes_for_worker: (global batch, workers, replicas per worker).
TEST(BatchPlan, MatchesBatchSizesOfTfDistribute) {
  const auto worker_sizes = [](std::int64_t batch, ReplicaLayout layout, int worker) {
    const BatchPlan plan = own_sequences(
        std::vector<std::int64_t>(static_cast<std::size_t>(layout.workers()), 1000), batch, layout);
    std::vector<std::int64_t> sizes;
    for (std::int64_t pull = 0; pull < layout.replicas; ++pull)
      sizes.push_back(
          plan.share(pull / layout.per_worker,
                     worker * layout.per_worker + static_cast<int>(pull) % layout.per_worker)
              .positions.size());
    return sizes;
  };
  EXPECT_THAT(worker_sizes(7, {4, 2}, 0), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(worker_sizes(7, {4, 2}, 1), ElementsAre(2, 1, 2, 2));
  EXPECT_THAT(worker_sizes(10, {4, 2}, 0), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(worker_sizes(10, {4, 2}, 1), ElementsAre(2, 2, 3, 3));
  EXPECT_THAT(worker_sizes(4, {2, 1}, 0), ElementsAre(2, 2));
  EXPECT_THAT(worker_sizes(4, {2, 1}, 1), ElementsAre(2, 2));
  EXPECT_THAT(worker_sizes(3, {4, 2}, 0), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(worker_sizes(3, {4, 2}, 1), ElementsAre(1, 0, 1, 1));
}

TEST(BatchPlan, AssignsAllRecordsToEveryWorkerWithoutSharding) {
  const BatchPlan plan(ShardPolicy::off, {12, 12}, 8, {2, 1});
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_THAT(
        batches(plan, {2, 1}, worker),
        ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7), ElementsAre(8, 9, 10, 11)));
}

TEST(BatchPlan, CutsSlicesOfEqualSizeByData) {
  const BatchPlan plan(ShardPolicy::data, {12}, 4, {2, 1});
  EXPECT_THAT(batches(plan, {2, 1}, 0),
              ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5), ElementsAre(8, 9)));
  EXPECT_THAT(batches(plan, {2, 1}, 1),
              ElementsAre(ElementsAre(2, 3), ElementsAre(6, 7), ElementsAre(10, 11)));
}

TEST(BatchPlan, LeavesTheLastSlicesShortOrEmptyByData) {
  const BatchPlan three(ShardPolicy::data, {8}, 4, {3, 3});
  EXPECT_THAT(batches(three, {3, 3}, 0),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(), ElementsAre(4, 5),
                          ElementsAre(6, 7), ElementsAre()));
  EXPECT_THAT(
      batches({ShardPolicy::data, {4}, 4, {5, 5}}, {5, 5}, 0),
      ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre()));
  EXPECT_THAT(batches({ShardPolicy::data, {6}, 4, {2, 2}}, {2, 2}, 0),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4), ElementsAre(5)));
}

// A worker with 3 batches and one with 2: three steps, and the second has nothing in the last.
TEST(BatchPlan, ContinuesUntilTheLastWorkerIsDone) {
  const BatchPlan plan = own_sequences({6, 4}, 4, {2, 1});
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_THAT(sizes(plan, 0), ElementsAre(2, 2, 2));
  EXPECT_THAT(sizes(plan, 1), ElementsAre(2, 2, 0));
  EXPECT_EQ(plan.share(2, 0), (BatchShare{{4, 6}, 0, 2}));
  EXPECT_EQ(plan.share(2, 1), (BatchShare{{4, 4}, 2, 2}));
  EXPECT_EQ(plan.share(0, 1), (BatchShare{{0, 2}, 2, 4}));
}

TEST(BatchPlan, EndsWithOneShortBatchOfAWorker) {
  const BatchPlan plan = own_sequences({5, 0}, 4, {2, 1});
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_THAT(sizes(plan, 0), ElementsAre(2, 2, 1));
  EXPECT_THAT(sizes(plan, 1), ElementsAre(0, 0, 0));
}

/// For any policy and layout, joined shares are whole steps, and each sequence is read once.
TEST(BatchPlan, CoversEverySequence) {
  for (const ShardPolicy policy :
       {ShardPolicy::automatic, ShardPolicy::data, ShardPolicy::file, ShardPolicy::off}) {
    for (const ReplicaLayout layout : {ReplicaLayout{1, 1}, {4, 1}, {4, 2}, {6, 3}, {7, 7}}) {
      for (const std::int64_t batch : {1, 3, 8, 10, 64}) {
        const bool own = policy == ShardPolicy::file || policy == ShardPolicy::off;
        std::vector<std::int64_t> records = {101};
        for (int worker = 1; own && worker < layout.workers(); ++worker)
          records.push_back(worker % 3 * 50);
        const BatchPlan plan(policy, records, batch, layout);
        std::vector<std::int64_t> read_counts(records.size());
        for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
          std::int64_t samples = 0;
          for (int replica = 0; replica < layout.replicas; ++replica) {
            const BatchShare share = plan.share(step, replica);
            samples += share.positions.size();
            read_counts[own ? static_cast<std::size_t>(replica / layout.per_worker) : 0] +=
                share.positions.size();
            EXPECT_LE(share.first_sample + share.positions.size(), share.global_samples);
            EXPECT_LE(share.global_samples, batch);
          }
          EXPECT_EQ(samples, plan.share(step, 0).global_samples);
        }
        for (int worker = 0; worker < layout.workers(); ++worker) {
          std::int64_t worker_total = 0;
          for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step)
            for (int local = 0; local < layout.per_worker; ++local)
              worker_total += plan.share(step, worker * layout.per_worker + local).positions.size();
          EXPECT_EQ(plan.records_of_worker(worker), worker_total);
        }
        EXPECT_EQ(read_counts, records)
            << to_string(policy) << ", batch " << batch << ", " << layout.replicas << " replicas";
      }
    }
  }
}

TEST(BatchPlan, RequiresEqualWorkersExceptForAuto) {
  EXPECT_EQ(input_error_of([] {
              BatchPlan(ShardPolicy::off, {10}, 4, {3, 2});
            }),
            "[shard-policy off] expected the same number of replicas on every rank; 3 replicas "
            "cannot be divided into ranks of 2");
  EXPECT_EQ(BatchPlan(ShardPolicy::automatic, {10}, 4, {3, 2}).steps_per_epoch(), 3);
}

TEST(BatchSplit, CoversEverySampleOnceAndEvenly) {
  for (std::int64_t parts = 1; parts <= 9; ++parts) {
    for (std::int64_t total = 0; total <= 40; ++total) {
      std::int64_t next = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range range = split(total, parts, part);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), total / parts);
        EXPECT_LE(range.size(), (total + parts - 1) / parts);
        next = range.end;
      }
      EXPECT_EQ(next, total) << total << " in " << parts;
    }
  }
}

TEST(BatchSplit, CutsAtDocumentedPositions) {
  EXPECT_EQ(split(10, 3, 0), (Range{0, 3}));
  EXPECT_EQ(split(10, 3, 1), (Range{3, 6}));
  EXPECT_EQ(split(10, 3, 2), (Range{6, 10}));
  EXPECT_EQ(split(2, 3, 0).size(), 0);
}

TEST(BatchSplit, DoesNotOverflow) {
  const std::int64_t total = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(split(total, 1000, 999).end, total);
  EXPECT_EQ(split(total, 1000, 500).begin, split(total, 1000, 499).end);
}

TEST(BatchSplit, ChecksItsArguments) {
  EXPECT_THROW(split(-1, 1, 0), CheckFailure);
  EXPECT_THROW(split(1, 0, 0), CheckFailure);
  EXPECT_THROW(split(1, 2, 2), CheckFailure);
  EXPECT_THROW(split(1, 2, -1), CheckFailure);
}

TEST(BatchSplit, InTurnBalancesTheParts) {
  for (const std::int64_t parts : {1, 2, 3, 7, 16}) {
    for (std::int64_t total = 0; total <= 40; ++total) {
      std::vector<std::int64_t> had(static_cast<std::size_t>(parts));
      for (std::int64_t turn = 0; turn < 50; ++turn) {
        std::int64_t end = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
          const Range range = split_in_turn(total, parts, part, turn);
          EXPECT_EQ(range.begin, end);
          end = range.end;
          had[static_cast<std::size_t>(part)] += range.size();
        }
        EXPECT_EQ(end, total);
        const auto [least, most] = std::minmax_element(had.begin(), had.end());
        EXPECT_LE(*most - *least, 1) << total << " in " << parts << ", turn " << turn;
      }
      for (std::int64_t part = 0; part < parts; ++part)
        EXPECT_EQ(split_in_turn(total, parts, part, 0), split(total, parts, part));
    }
  }
}

TEST(ShardPolicy, HasNames) {
  for (const ShardPolicy policy :
       {ShardPolicy::automatic, ShardPolicy::file, ShardPolicy::data, ShardPolicy::off})
    EXPECT_EQ(parse_name<ShardPolicy>("shard-policy", to_string(policy)), policy);
  EXPECT_EQ(to_string(ShardPolicy::automatic), "auto");
  EXPECT_EQ(input_error_of([] { parse_name<ShardPolicy>("shard-policy", "records"); }),
            "[shard-policy] expected auto, file, data or off, got \"records\"");
}

}  // namespace
}  // namespace lockstep::inline v0::data
