// The records, order and sizes of a process's batches.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <tuple>

#include "lockstep/data/dataset.h"
#include "lockstep/data/order/batch_plan.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::Combine;
using ::testing::ElementsAre;
using ::testing::Values;

class StreamOverReplicas : public ::testing::TestWithParam<std::tuple<int, std::int64_t, int>> {};

/// For any number of replicas, the joined parts are the global batches of one replica.
TEST_P(StreamOverReplicas, VisitsEveryRecordOnceAnEpoch) {
  const auto [replicas, global_batch, threads] = GetParam();
  constexpr std::int64_t kRecords = 53;
  const Dataset dataset = counting(kRecords, global_batch).shuffle();
  StreamOptions options = epochs(dataset, 2);
  const auto expected = ids_of(dataset, options);
  options.replicas = replicas;
  options.threads = threads;

  std::vector<std::vector<std::int64_t>> joined(expected.size());
  for (int replica = 0; replica < replicas; ++replica) {
    options.first_replica = replica;
    const auto own = ids_of(dataset, options);
    ASSERT_EQ(own.size(), expected.size());
    for (std::size_t step = 0; step < own.size(); ++step) {
      const auto samples = static_cast<std::int64_t>(own[step].size());
      const auto all = static_cast<std::int64_t>(expected[step].size());
      EXPECT_TRUE(samples == all / replicas || samples == (all + replicas - 1) / replicas);
      joined[step].insert(joined[step].end(), own[step].begin(), own[step].end());
    }
  }
  EXPECT_EQ(joined, expected);

  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<std::int64_t> seen;
    const auto steps = static_cast<std::size_t>(dataset.steps_per_epoch());
    for (std::size_t step = 0; step < steps; ++step)
      seen.insert(joined[epoch * steps + step].begin(), joined[epoch * steps + step].end());
    ASSERT_EQ(seen.size(), kRecords);
    std::int64_t id = 0;
    for (const std::int64_t each : seen) EXPECT_EQ(each, id++);
  }
}

std::string name_of_cut(const ::testing::TestParamInfo<StreamOverReplicas::ParamType>& info) {
  const auto [replicas, global_batch, threads] = info.param;
  return fmt::format("replicas_{}_batch_{}_threads_{}", replicas, global_batch, threads);
}

INSTANTIATE_TEST_SUITE_P(Stream, StreamOverReplicas,
                         Combine(Values(1, 2, 3, 4, 7), Values(1, 5, 10, 53, 100), Values(1, 3)),
                         name_of_cut);

TEST(Stream, OneProcessMayHaveSeveralReplicas) {
  const Dataset dataset = counting(20, 10).shuffle();
  StreamOptions options = epochs(dataset, 1);
  const auto whole = ids_of(dataset, options);
  options.replicas = 4;
  options.first_replica = 1;
  options.local_replicas = 2;
  options.threads = 3;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  for (std::size_t step = 0; step < 2; ++step) {
    ASSERT_TRUE(stream->next(parts));
    ASSERT_EQ(parts.size(), 2u);
    for (int local = 0; local < 2; ++local) {
      const Batch& part = parts[static_cast<std::size_t>(local)];
      const Range range = split_in_turn(10, 4, 1 + local, static_cast<std::int64_t>(step));
      EXPECT_EQ(part.first_sample, range.begin);
      EXPECT_EQ(part.samples, range.size());
      const auto begin = whole[step].begin() + range.begin;
      EXPECT_EQ(part.record_ids, std::vector<std::int64_t>(begin, begin + range.size()));
    }
  }
}

TEST(Stream, OrdersPartsByMicroBatchesThatDoNotDependOnTheReplicas) {
  const Dataset dataset = counting(22, 10).shuffle();
  StreamOptions options = epochs(dataset, 1);
  const auto whole = ids_of(dataset, options);
  options.replicas = options.local_replicas = 4;
  options.threads = 3;
  options.micro_batches = 3;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  for (const std::vector<std::int64_t>& samples : whole) {  // sizes 10, 10 and 2
    ASSERT_TRUE(stream->next(parts));
    const auto count = std::min<std::int64_t>(3, static_cast<std::int64_t>(samples.size()));
    for (std::int64_t number = 0; number < count; ++number) {
      std::vector<std::int64_t> expected;
      for (auto i = static_cast<std::size_t>(number); i < samples.size();
           i += static_cast<std::size_t>(count))
        expected.push_back(samples[i]);
      std::vector<std::int64_t> joined;
      for (const Batch& part : parts) {
        ASSERT_EQ(part.micro_batches, count);
        const MicroBatchOrder order({part.first_sample, part.first_sample + part.samples}, count);
        const Range range = order.range(number);
        for (auto i = static_cast<std::size_t>(range.begin);
             i < static_cast<std::size_t>(range.end); ++i) {
          joined.push_back(part.record_ids[i]);
          EXPECT_EQ(part.features()[2 * i], static_cast<float>(part.record_ids[i]));
          EXPECT_EQ(part.labels()[i], part.record_ids[i] % 5);
        }
      }
      EXPECT_EQ(joined, expected) << "micro-batch " << number;
    }
  }
}

TEST(Stream, FillsEveryFieldOfABatch) {
  const Dataset dataset = counting(7, 4);
  StreamOptions options = epochs(dataset, 2);
  options.replicas = 2;
  options.first_replica = 1;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_EQ(parts[0].step, 0);
  EXPECT_EQ(parts[0].epoch, 0);
  EXPECT_EQ(parts[0].first_sample, 2);
  EXPECT_EQ(parts[0].samples, 2);
  EXPECT_EQ(parts[0].global_samples, 4);
  EXPECT_THAT(parts[0].record_ids, ElementsAre(2, 3));
  EXPECT_THAT(copy(parts[0].features()), ElementsAre(2, 4, 3, 6));
  EXPECT_THAT(copy(parts[0].labels()), ElementsAre(2, 3));
  EXPECT_TRUE(parts[0].values().empty());
  ASSERT_TRUE(stream->next(parts));  // the smaller last batch: 3 samples, 1 and 2
  EXPECT_EQ(parts[0].step, 1);
  EXPECT_EQ(parts[0].first_sample, 1);
  EXPECT_EQ(parts[0].global_samples, 3);
  EXPECT_THAT(parts[0].record_ids, ElementsAre(5, 6));
  ASSERT_TRUE(stream->next(parts));
  EXPECT_EQ(parts[0].step, 2);
  EXPECT_EQ(parts[0].epoch, 1);
  ASSERT_TRUE(stream->next(parts));
  EXPECT_FALSE(stream->next(parts));
  EXPECT_FALSE(stream->next(parts));
}

TEST(Stream, FillsTargetsWhereThereAreNoClasses) {
  const Dataset dataset = Dataset::from_source(std::make_shared<CountingSource>(4, 3)).batch(2);
  const auto stream = dataset.stream(epochs(dataset, 1));
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_TRUE(parts[0].labels().empty());
  EXPECT_THAT(copy(parts[0].values()), ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(Stream, ABatchLargerThanTheDataIsOneRaggedStep) {
  const Dataset dataset = counting(3, 100);
  EXPECT_EQ(dataset.steps_per_epoch(), 1);
  EXPECT_THAT(ids_of(dataset, epochs(dataset, 2)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 2)));
}

TEST(Stream, AReplicaMayHaveNoSamples) {
  const Dataset dataset = counting(5, 2);
  StreamOptions options = epochs(dataset, 1);
  options.replicas = 6;
  options.threads = 2;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(stream->next(parts));
    EXPECT_EQ(parts[0].samples, 0);
    EXPECT_EQ(parts[0].global_samples, step < 2 ? 2 : 1);
    EXPECT_TRUE(parts[0].features().empty());
  }
}

TEST(Stream, ReadsOnlyTheRecordsOfItsReplicas) {
  const auto source = std::make_shared<CountingSource>(40);
  const Dataset dataset = Dataset::from_source(source).shuffle().batch(8);
  StreamOptions options = epochs(dataset, 1);
  options.replicas = 4;
  options.first_replica = 2;
  ids_of(dataset, options);
  EXPECT_EQ(source->reads(), 10);
}

TEST(Stream, WithoutShuffleReadsInIdOrder) {
  const Dataset dataset = counting(7, 3);
  EXPECT_THAT(ids_of(dataset, epochs(dataset, 1)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6)));
}

TEST(Stream, ShufflesEpochsAndSeedsDifferently) {
  const Dataset dataset = counting(100, 100).shuffle();
  StreamOptions options = epochs(dataset, 2);
  const auto one = ids_of(dataset, options);
  EXPECT_NE(one[0], one[1]);
  EXPECT_EQ(ids_of(dataset, options), one);
  options.seed = 2;
  EXPECT_NE(ids_of(dataset, options)[0], one[0]);
}

TEST(Stream, ResumesAtAnyStepWithTheSameIds) {
  const Dataset dataset = counting(23, 5).shuffle();
  StreamOptions options = epochs(dataset, 3);
  const auto whole = ids_of(dataset, options);
  for (std::int64_t first = 0; first <= options.last_step; ++first) {
    options.first_step = first;
    options.threads = 1 + static_cast<int>(first % 3);
    EXPECT_EQ(ids_of(dataset, options), std::vector(whole.begin() + first, whole.end()))
        << "from step " << first;
  }
}

TEST(Stream, ContinuesWithoutALastStep) {
  const Dataset dataset = counting(3, 2);
  const auto stream = dataset.stream({});
  std::vector<Batch> parts;
  for (std::int64_t step = 0; step < 50; ++step) {
    ASSERT_TRUE(stream->next(parts));
    ASSERT_EQ(parts[0].epoch, step / 2);
  }
}

TEST(Stream, AppliesMapsInTheirOrderWithTheSampleKey) {
  const Dataset dataset = counting(6, 6)
                              .map([](Sample& sample, const SampleKey& key) {
                                sample.features()[0] += 100.0f;
                                sample.label() = static_cast<std::int32_t>(key.record_id * 2);
                              })
                              .shuffle()
                              .map([](Sample& sample, const SampleKey& key) {
                                sample.features()[0] *= 2.0f;
                                sample.features()[1] = static_cast<float>(
                                    key.epoch * 1000 + static_cast<std::int64_t>(key.seed));
                              });
  StreamOptions options = epochs(dataset, 2);
  options.seed = 9;
  options.first_step = 1;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  for (std::size_t i = 0; i < 6; ++i) {
    const auto id = parts[0].record_ids[i];
    EXPECT_EQ(parts[0].features()[2 * i], static_cast<float>(2 * (id + 100)));
    EXPECT_EQ(parts[0].features()[2 * i + 1], 1009.0f);
    EXPECT_EQ(parts[0].labels()[i], id * 2);
  }
}

/// Counts the records that are read without having been announced. For one thread at a time.
class AnnouncedSource final : public CountingSource {
 public:
  using CountingSource::CountingSource;
  void prefetch(std::int64_t record_id) const override { announced_.insert(record_id); }
  void read(std::int64_t record_id, Sample& sample) const override {
    const auto found = announced_.find(record_id);
    if (found == announced_.end())
      ++unannounced_;
    else
      announced_.erase(found);
    CountingSource::read(record_id, sample);
  }

  void forget() const {
    announced_.clear();
    unannounced_ = 0;
  }
  std::size_t unread() const { return announced_.size(); }
  std::int64_t unannounced() const { return unannounced_; }

 private:
  mutable std::multiset<std::int64_t> announced_;
  mutable std::int64_t unannounced_ = 0;
};

TEST(Stream, AnnouncesEachRecordBeforeItReadsIt) {
  const auto source = std::make_shared<const AnnouncedSource>(60);
  const Dataset all = Dataset::from_source(source);
  const auto double_it = [](Sample& sample, const SampleKey&) { sample.features()[0] *= 2; };
  const auto is_even = [](const Sample& sample) { return sample.label() % 2 == 0; };
  for (const Dataset& dataset : {all, all.skip(3).take(50), all.repeat(2), all.filter(is_even, 1),
                                 all.map(double_it).take(40)}) {
    source->forget();
    const Dataset shuffled = dataset.shuffle().batch(25);
    EXPECT_FALSE(ids_of(shuffled, epochs(shuffled, 2)).empty());
    EXPECT_EQ(source->unannounced(), 0);
    EXPECT_EQ(source->unread(), 0U);
  }
}

TEST(Stream, RejectsInvalidOptions) {
  const Dataset dataset = counting(10, 5);
  const auto message = [&](auto change) {
    StreamOptions options;
    change(options);
    return input_error_of([&] { dataset.stream(options); });
  };
  EXPECT_EQ(message([](StreamOptions& o) { o.threads = 0; }),
            "[stream] expected at least 1 thread, got 0");
  EXPECT_EQ(message([](StreamOptions& o) { o.prefetch = 0; }),
            "[stream] expected a prefetch of at least 1 batch, got 0");
  EXPECT_EQ(message([](StreamOptions& o) { o.prefetch_bytes = 0; }),
            "[stream] expected at least 1 byte for batches read ahead, got 0");
  EXPECT_EQ(message([](StreamOptions& o) { o.replicas = 0; }),
            "[stream] expected at least 1 replica, got 0");
  EXPECT_EQ(message([](StreamOptions& o) { o.local_replicas = 0; }),
            "[stream] expected at least 1 local replica, got 0");
  EXPECT_EQ(message([](StreamOptions& o) { o.first_replica = 1; }),
            "[stream] expected a first replica that leaves room for 1 local replicas of 1, got 1");
  EXPECT_EQ(message([](StreamOptions& o) { o.first_step = -1; }),
            "[stream] expected a first step of 0 or more, got -1");
}

}  // namespace
}  // namespace lockstep::inline v0::data
