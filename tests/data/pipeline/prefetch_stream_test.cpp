// Batches prefetched by threads: reproducible, limited, and stopped at any time, also by an error.
#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <latch>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/pipeline/prefetch_stream.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

TEST(Stream, IsBitIdenticalForAnyThreads) {
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

TEST(Stream, ReusesMemory) {
  const Dataset dataset = counting(30, 8).shuffle();
  StreamOptions options = epochs(dataset, 10);
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  std::set<const float*> seen;
  for (int step = 0; step < 12; ++step) {  // three epochs, with smaller last batches
    ASSERT_TRUE(stream->next(parts));
    seen.insert(parts[0].features().data());
  }
  EXPECT_LE(seen.size(), 3u);  // two slots and the caller's
}

TEST(Stream, RespectsThePrefetchLimit) {
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

TEST(Stream, NextIfReadyReturnsOnlyReadySteps) {
  std::latch may_go_on(1);
  const Dataset dataset = Dataset::from_source(std::make_shared<CountingSource>(3, 0, 2))
                              .map([&](Sample&, const SampleKey& key) {
                                if (key.record_id == 1) may_go_on.wait();
                              })
                              .batch(1);
  const auto stream = dataset.stream({});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_FALSE(stream->next_if_ready(parts)) << "step 1 is not read yet";
  EXPECT_EQ(parts[0].step, 0);
  may_go_on.count_down();
  while (!stream->next_if_ready(parts)) std::this_thread::yield();
  EXPECT_EQ(parts[0].step, 1);
  EXPECT_THROW(stream->next(parts), Error);
  EXPECT_FALSE(stream->next_if_ready(parts)) << "only next() throws errors";
}

TEST(Stream, DeliversTheStepsBeforeAnErrorThenThrowsIt) {
  for (const int threads : {1, 2, 4}) {
    const Dataset dataset =
        Dataset::from_source(std::make_shared<CountingSource>(100, 0, 57)).batch(10);
    StreamOptions options;
    options.threads = threads;
    options.prefetch = 4;
    const auto stream = dataset.stream(options);
    std::vector<Batch> parts;
    for (int step = 0; step < 5; ++step) {
      ASSERT_TRUE(stream->next(parts));
      ASSERT_EQ(parts[0].step, step);
    }
    // Records 57, 58 and 59 are all broken; the first in data order is reported, whichever thread
    // was faster. And again.
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(data_error_of([&] { stream->next(parts); }),
                "[source] expected a whole record; record 57 is broken")
          << threads << " threads";
    }
  }
}

TEST(Stream, RethrowsErrorsOfMaps) {
  const Dataset dataset = counting(10, 5).map([](Sample&, const SampleKey& key) {
    if (key.record_id == 7) throw std::runtime_error("a map's own");
  });
  const auto stream = dataset.stream({});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THROW(stream->next(parts), std::runtime_error);
}

TEST(Stream, DropsErrorsOfUnreadSteps) {
  const Dataset dataset = Dataset::from_source(std::make_shared<CountingSource>(10, 0, 0)).batch(5);
  StreamOptions options;
  options.threads = 2;
  for (int i = 0; i < 50; ++i) dataset.stream(options);
}

TEST(Stream, StopsAtAnyTime) {
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

/// Waits until thread `id` of this process sleeps.
void wait_until_asleep(pid_t id) {
  const std::string path = "/proc/self/task/" + std::to_string(id) + "/stat";
  for (std::string number, name, state; state != "S"; std::this_thread::yield())
    std::ifstream(path) >> number >> name >> state;
}

TEST(Stream, CountsTheSecondsItWaited) {
  std::latch requested(1);
  std::latch waits(1);
  const Dataset dataset = counting(10, 5).map([&](Sample&, const SampleKey&) { waits.wait(); });
  StreamOptions options;
  options.last_step = 1;
  const auto stream = dataset.stream(options);
  EXPECT_EQ(stream->seconds_waited(), 0.0);
  std::vector<Batch> parts;
  std::jthread release([&, asker = ::gettid()] {
    requested.wait();
    wait_until_asleep(asker);
    waits.count_down();
  });
  const auto start = std::chrono::steady_clock::now();
  requested.count_down();
  ASSERT_TRUE(stream->next(parts));
  EXPECT_GT(stream->seconds_waited(), 0.0);
  EXPECT_LE(stream->seconds_waited(), seconds_since(start));
}

TEST(Stream, CountsTheProcessorTimeOfItsThreads) {
  const Dataset dataset = counting(10, 5).map([&](Sample&, const SampleKey&) {
    const double end = processor_seconds(CLOCK_THREAD_CPUTIME_ID) + 0.002;
    while (processor_seconds(CLOCK_THREAD_CPUTIME_ID) < end) continue;
  });
  StreamOptions options;
  options.last_step = 2;
  options.threads = 2;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  while (stream->next(parts)) continue;
  while (stream->processor_seconds() < 10 * 0.002) std::this_thread::yield();  // counted afterwards
}

int slots_of(const Dataset& dataset, const StreamOptions& options) {
  return dynamic_cast<const PrefetchStream&>(*dataset.stream(options)).slots();
}

TEST(Stream, PrefetchOfTheDatasetOverridesTheOptions) {
  EXPECT_EQ(slots_of(counting(10, 5), {.prefetch = 3}), 3);
  EXPECT_EQ(slots_of(counting(10, 5).prefetch(4), {.prefetch = 3}), 4);
  const Dataset early =
      Dataset::from_source(std::make_shared<CountingSource>(10)).prefetch(4).take(7).batch(2);
  EXPECT_EQ(slots_of(early, {.prefetch = 3}), 4);
  EXPECT_EQ(input_error_of([] { counting(10, 5).prefetch(0); }),
            "[prefetch] expected at least 1 batch, got 0");
}

TEST(Stream, RespectsTheMemoryLimit) {
  // A sample of 2 floats and an id of 8 bytes, with a label of 4.
  const auto slots = [](const Dataset& dataset, std::int64_t bytes, int replicas = 1) {
    return slots_of(dataset, {.replicas = replicas, .prefetch = 5, .prefetch_bytes = bytes});
  };
  EXPECT_EQ(slots(counting(100, 10), 1000), 5);
  EXPECT_EQ(slots(counting(100, 10), 999), 4);
  EXPECT_EQ(slots(counting(100, 10), 400), 2);
  EXPECT_EQ(slots(counting(100, 10), 399), 1);
  EXPECT_EQ(slots(counting(100, 10), 1), 1) << "one slot is required";
  EXPECT_EQ(slots(counting(100, 10), 500, 2), 5) << "only local replicas count";
  EXPECT_EQ(slots(counting(4, 10), 400), 5) << "no batch is larger than the data set";
  const Dataset regression =
      Dataset::from_source(std::make_shared<CountingSource>(100, 3)).batch(10);
  EXPECT_EQ(slots(regression, 10 * (8 + 12 + 8) * 3), 3);
  const Dataset images = Dataset::synthetic({2, 2, 1}, 3, 100).batch(10);
  EXPECT_EQ(slots(images, 10 * (16 + 12) * 2), 2);
}

TEST(Stream, CountsPixelsAsBytes) {
  const Dataset images =
      Dataset::from_memory(std::vector<std::uint8_t>(40), std::vector<std::int32_t>(10),
                           SampleSpec::classification({2, 2, 1}, 1))
          .batch(10);
  EXPECT_EQ(slots_of(images, {.prefetch = 5, .prefetch_bytes = 10 * (4 + 12) * 3, .pixels = true}),
            3);
}

TEST(Stream, AdaptsTheNumberOfThreads) {
  const auto source = std::make_shared<CountingSource>(1000);
  std::atomic<bool> slow = false;
  const Dataset dataset = Dataset::from_source(source)
                              .map([&](Sample&, const SampleKey&) {
                                if (slow)
                                  std::this_thread::sleep_for(std::chrono::microseconds(200));
                              })
                              .batch(2);
  const auto stream = dataset.stream({.prefetch = 2, .threads = 2});
  EXPECT_EQ(stream->workers(), 2);
  std::vector<Batch> parts;
  std::int64_t step = 0;
  const auto next = [&] {
    ASSERT_TRUE(stream->next(parts));
    ASSERT_EQ(parts[0].step, step++);
    ASSERT_EQ(parts[0].features()[0], static_cast<float>(parts[0].record_ids[0]));
  };
  while (!HasFailure() &&
         stream->workers() > 1) {  // the batches are ready long before they are requested
    while (source->reads() < 2 * (step + 2)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    next();
  }
  slow = true;
  while (!HasFailure() && stream->workers() < 2) next();
}

}  // namespace
}  // namespace lockstep::inline v0::data
