// The batches a process gets: which records, in which order, cut how, and what happens when something fails or stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "data/dataset.h"
#include "data/order/batch_split.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using ::testing::Combine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Values;

/// Record i has features (i, 2i), label i % 5 and, if asked for, targets (i, i, i). Records from `broken` on cannot be
/// read.
class CountingSource : public RecordSource {
 public:
  explicit CountingSource(std::int64_t records, std::int64_t targets = 0, std::int64_t broken = -1)
      : spec_{{2}, targets > 0 ? 0 : 5, targets}, records_(records), broken_(broken) {}

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return records_; }
  void read(std::int64_t record_id, Sample& sample) const override {
    reads_.fetch_add(1);
    if (broken_ >= 0 && record_id >= broken_) {
      throw Error(ErrorCategory::data, "source", "needed a whole record",
                  "record " + std::to_string(record_id) + " is broken");
    }
    ASSERT_EQ(sample.features.size(), 2u);
    sample.features[0] = static_cast<float>(record_id);
    sample.features[1] = static_cast<float>(2 * record_id);
    if (spec_.classes > 0) sample.label = static_cast<std::int32_t>(record_id % 5);
    for (float& target : sample.targets) target = static_cast<float>(record_id);
  }
  std::string description() const override { return "counting"; }

  std::int64_t reads() const { return reads_; }

 private:
  SampleSpec spec_;
  std::int64_t records_;
  std::int64_t broken_;
  mutable std::atomic<std::int64_t> reads_ = 0;
};

Dataset counting(std::int64_t records, std::int64_t global_batch) {
  return Dataset::from_source(std::make_shared<CountingSource>(records)).batch(global_batch);
}

/// The record ids of each step, over the parts of one process.
std::vector<std::vector<std::int64_t>> ids_of(const Dataset& dataset, const StreamOptions& options) {
  const auto stream = dataset.stream(options);
  std::vector<std::vector<std::int64_t>> steps;
  for (std::vector<Batch> parts; stream->next(parts);) {
    steps.emplace_back();
    for (const Batch& part : parts)
      steps.back().insert(steps.back().end(), part.record_ids.begin(), part.record_ids.end());
  }
  return steps;
}

StreamOptions epochs(const Dataset& dataset, std::int64_t count) {
  StreamOptions options;
  options.last_step = dataset.steps_per_epoch() * count;
  return options;
}

class StreamOverReplicas : public ::testing::TestWithParam<std::tuple<int, std::int64_t, int>> {};

/// Whatever the number of replicas, their parts side by side are the global batches of one replica.
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

INSTANTIATE_TEST_SUITE_P(Stream, StreamOverReplicas,
                         Combine(Values(1, 2, 3, 4, 7), Values(1, 5, 10, 53, 100), Values(1, 3)));

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
      const Range range = split(10, 4, 1 + local);
      EXPECT_EQ(part.first_sample, range.begin);
      EXPECT_EQ(part.samples, range.size());
      const auto begin = whole[step].begin() + range.begin;
      EXPECT_EQ(part.record_ids, std::vector<std::int64_t>(begin, begin + range.size()));
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
  EXPECT_THAT(parts[0].features, ElementsAre(2, 4, 3, 6));
  EXPECT_THAT(parts[0].labels, ElementsAre(2, 3));
  EXPECT_TRUE(parts[0].targets.empty());
  ASSERT_TRUE(stream->next(parts));  // the ragged one: 3 samples, 1 and 2
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
  EXPECT_TRUE(parts[0].labels.empty());
  EXPECT_THAT(parts[0].targets, ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(Stream, ABatchLargerThanTheDataIsOneRaggedStep) {
  const Dataset dataset = counting(3, 100);
  EXPECT_EQ(dataset.steps_per_epoch(), 1);
  EXPECT_THAT(ids_of(dataset, epochs(dataset, 2)), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 2)));
}

TEST(Stream, AReplicaMayGetNothingAndStillTakesPart) {
  const Dataset dataset = counting(5, 2);
  StreamOptions options = epochs(dataset, 1);
  options.replicas = 3;
  options.threads = 2;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(stream->next(parts));
    EXPECT_EQ(parts[0].samples, 0);
    EXPECT_EQ(parts[0].global_samples, step < 2 ? 2 : 1);
    EXPECT_TRUE(parts[0].features.empty());
  }
}

TEST(Stream, ReadsTheRecordsOfItsOwnReplicasAlone) {
  const auto source = std::make_shared<CountingSource>(40);
  const Dataset dataset = Dataset::from_source(source).shuffle().batch(8);
  StreamOptions options = epochs(dataset, 1);
  options.replicas = 4;
  options.first_replica = 2;
  ids_of(dataset, options);
  EXPECT_EQ(source->reads(), 10);
}

TEST(Stream, WithoutShuffleGoesInTheOrderOfIds) {
  const Dataset dataset = counting(7, 3);
  EXPECT_THAT(ids_of(dataset, epochs(dataset, 1)),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6)));
}

TEST(Stream, ShufflesEveryEpochAndSeedOtherwise) {
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
    EXPECT_EQ(ids_of(dataset, options), std::vector(whole.begin() + first, whole.end())) << "from step " << first;
  }
}

TEST(Stream, GoesOnWithoutAnEnd) {
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
                                sample.features[0] += 100.0f;
                                sample.label = static_cast<std::int32_t>(key.record_id * 2);
                              })
                              .shuffle()
                              .map([](Sample& sample, const SampleKey& key) {
                                sample.features[0] *= 2.0f;
                                sample.features[1] =
                                    static_cast<float>(key.epoch * 1000 + static_cast<std::int64_t>(key.seed));
                              });
  StreamOptions options = epochs(dataset, 2);
  options.seed = 9;
  options.first_step = 1;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  for (std::size_t i = 0; i < 6; ++i) {
    const auto id = parts[0].record_ids[i];
    EXPECT_EQ(parts[0].features[2 * i], static_cast<float>(2 * (id + 100)));
    EXPECT_EQ(parts[0].features[2 * i + 1], 1009.0f);
    EXPECT_EQ(parts[0].labels[i], id * 2);
  }
}

TEST(Stream, ThreadsDoNotChangeABit) {
  const Dataset dataset = counting(101, 10).shuffle();
  const auto expected = ids_of(dataset, epochs(dataset, 3));
  for (const int threads : {2, 3, 8}) {
    for (const int prefetch : {1, 2, 5}) {
      StreamOptions options = epochs(dataset, 3);
      options.threads = threads;
      options.prefetch = prefetch;
      EXPECT_EQ(ids_of(dataset, options), expected) << threads << " threads, prefetch " << prefetch;
    }
  }
}

TEST(Stream, MemoryGoesRound) {
  const Dataset dataset = counting(30, 8).shuffle();
  StreamOptions options = epochs(dataset, 10);
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  std::set<const float*> seen;
  for (int step = 0; step < 12; ++step) {  // three epochs: ragged batches included
    ASSERT_TRUE(stream->next(parts));
    seen.insert(parts[0].features.data());
  }
  EXPECT_LE(seen.size(), 3u);  // those of two slots, and the caller's
}

TEST(Stream, ReadsNoFurtherAheadThanAsked) {
  const auto source = std::make_shared<CountingSource>(1000);
  std::latch third_begun(1);
  std::atomic<bool> too_far = false;
  const Dataset dataset = Dataset::from_source(source)
                              .map([&](Sample&, const SampleKey& key) {
                                if (key.record_id == 2) third_begun.count_down();
                                if (key.record_id > 2) too_far = true;
                              })
                              .batch(1);
  StreamOptions options;
  options.prefetch = 3;
  const auto stream = dataset.stream(options);
  third_begun.wait();
  EXPECT_FALSE(too_far);
  EXPECT_EQ(source->reads(), 3);
}

TEST(Stream, DeliversTheStepsBeforeAnErrorThenThrowsIt) {
  for (const int threads : {1, 2, 4}) {
    const Dataset dataset = Dataset::from_source(std::make_shared<CountingSource>(100, 0, 57)).batch(10);
    StreamOptions options;
    options.threads = threads;
    options.prefetch = 4;
    const auto stream = dataset.stream(options);
    std::vector<Batch> parts;
    for (int step = 0; step < 5; ++step) {
      ASSERT_TRUE(stream->next(parts));
      ASSERT_EQ(parts[0].step, step);
    }
    // Records 57, 58 and 59 are all broken; the first in the order of the data is reported, whichever thread was
    // faster. And again.
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(data_error_of([&] { stream->next(parts); }), "[source] needed a whole record; record 57 is broken")
          << threads << " threads";
    }
  }
}

TEST(Stream, ThrowsWhatAMapThrows) {
  const Dataset dataset = counting(10, 5).map([](Sample&, const SampleKey& key) {
    if (key.record_id == 7) throw std::runtime_error("a map's own");
  });
  const auto stream = dataset.stream({});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THROW(stream->next(parts), std::runtime_error);
}

TEST(Stream, AnErrorNobodyAsksForIsDropped) {
  const Dataset dataset = Dataset::from_source(std::make_shared<CountingSource>(10, 0, 0)).batch(5);
  StreamOptions options;
  options.threads = 2;
  for (int i = 0; i < 50; ++i) dataset.stream(options);
}

TEST(Stream, StopsAtAnyMoment) {
  const Dataset dataset = counting(1000, 64).shuffle();
  for (int trial = 0; trial < 200; ++trial) {
    StreamOptions options;
    options.threads = 1 + trial % 4;
    options.prefetch = 1 + trial % 3;
    const auto stream = dataset.stream(options);
    std::vector<Batch> parts;
    for (int step = 0; step < trial % 7; ++step) ASSERT_TRUE(stream->next(parts));
  }
}

TEST(Stream, StopsWithinABatch) {
  const auto source = std::make_shared<CountingSource>(1'000'000'000);
  std::latch begun(1);
  const Dataset dataset = Dataset::from_source(source)
                              .map([&](Sample&, const SampleKey& key) {
                                if (key.record_id == 0) begun.count_down();
                              })
                              .batch(2'000'000);
  dataset.stream({}).reset();
  const auto stream = dataset.stream({});
  begun.wait();
}

TEST(Stream, OutlivesItsDataset) {
  std::unique_ptr<BatchStream> stream;
  {
    const Dataset dataset = counting(10, 5);
    stream = dataset.stream({});
  }
  std::vector<Batch> parts;
  for (int step = 0; step < 10; ++step) ASSERT_TRUE(stream->next(parts));
}

TEST(Stream, CountsTheSecondsItWaited) {
  std::latch asked(1);
  const Dataset dataset = counting(10, 5).map([&](Sample&, const SampleKey&) { asked.wait(); });
  StreamOptions options;
  options.last_step = 1;
  const auto stream = dataset.stream(options);
  EXPECT_EQ(stream->seconds_waited(), 0.0);
  std::vector<Batch> parts;
  std::jthread release([&] { asked.count_down(); });
  ASSERT_TRUE(stream->next(parts));
  EXPECT_GE(stream->seconds_waited(), 0.0);
}

TEST(Stream, RefusesOptionsThatCannotBe) {
  const Dataset dataset = counting(10, 5);
  const auto message = [&](auto change) {
    StreamOptions options;
    change(options);
    return input_error_of([&] { dataset.stream(options); });
  };
  EXPECT_EQ(message([](StreamOptions& o) { o.threads = 0; }), "[stream] needed at least 1 thread; 0 was given");
  EXPECT_EQ(message([](StreamOptions& o) { o.prefetch = 0; }),
            "[stream] needed a prefetch of at least 1 batch; 0 was given");
  EXPECT_EQ(message([](StreamOptions& o) { o.replicas = 0; }), "[stream] needed at least 1 replica; 0 was given");
  EXPECT_EQ(message([](StreamOptions& o) { o.local_replicas = 0; }),
            "[stream] needed at least 1 local replica; 0 was given");
  EXPECT_EQ(message([](StreamOptions& o) { o.first_replica = 1; }),
            "[stream] needed 1 local of 1 replicas; 1 was given");
  EXPECT_EQ(message([](StreamOptions& o) { o.first_step = -1; }), "[stream] needed a first step from 0; -1 was given");
}

TEST(Dataset, MustBeBatchedAndNotEmptyToStream) {
  const Dataset unbatched = Dataset::from_source(std::make_shared<CountingSource>(10));
  EXPECT_EQ(input_error_of([&] { unbatched.stream({}); }),
            "[stream] needed a data set grouped into batches; call batch() first; it is not");
  EXPECT_EQ(unbatched.steps_per_epoch(), 0);
  EXPECT_EQ(data_error_of([] { counting(0, 5).stream({}); }),
            "[counting] needed at least one record; the data set is empty");
  EXPECT_EQ(input_error_of([&] { unbatched.batch(0); }),
            "[batch] needed a global batch of at least 1 sample; 0 was given");
}

TEST(Dataset, IsAValueThatStepsDoNotChange) {
  const Dataset plain = counting(10, 4);
  const Dataset shuffled = plain.shuffle();
  EXPECT_THAT(ids_of(plain, epochs(plain, 1))[0], ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(shuffled.steps_per_epoch(), 3);
  EXPECT_EQ(shuffled.batch(5).steps_per_epoch(), 2);
  EXPECT_EQ(shuffled.global_batch(), 4);
  EXPECT_EQ(plain.description(), "counting");
}

}  // namespace
}  // namespace lockstep::data
