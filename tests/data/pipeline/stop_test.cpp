// Streams that end after any number of steps of any operations: their threads end with them.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using Words = std::function<Dataset(const Dataset& numbers, const TemporaryDirectory& directory)>;

struct Pipe {
  const char* name;
  Words words;
};

void double_features(Sample& sample, const SampleKey&) {
  for (float& feature : sample.features()) feature *= 2;
}

// Each has at most 36 records, some of them broken if some of `numbers` are.
const Pipe kPipes[] = {
    {"none", [](const Dataset& numbers, const auto&) { return numbers; }},
    {"map", [](const Dataset& numbers, const auto&) { return numbers.map(double_features); }},
    {"take", [](const Dataset& numbers, const auto&) { return numbers.take(12); }},
    {"skip",
     [](const Dataset& numbers, const auto&) { return numbers.map(double_features).skip(2); }},
    {"repeat", [](const Dataset& numbers, const auto&) { return numbers.repeat(2); }},
    {"concatenate",
     [](const Dataset& numbers, const auto&) { return numbers.concatenate(numbers.take(3)); }},
    {"interleave",
     [](const Dataset& numbers, const auto&) {
       return Dataset::interleave({numbers, numbers}, 2, 3);
     }},
    {"filter",
     [](const Dataset& numbers, const auto&) {
       const Dataset whole = Dataset::from_source(std::make_shared<CountingSource>(numbers.size()));
       return whole.filter([](const Sample& sample) { return sample.label() < 4; })
           .concatenate(numbers);
     }},
    {"cache",
     [](const Dataset& numbers, const auto&) { return numbers.map(double_features).cache(); }},
    {"cache_in_file",
     [](const Dataset& numbers, const TemporaryDirectory& directory) {
       return numbers.cache(directory / "cache").repeat(2);
     }},
    {"prefetch", [](const Dataset& numbers, const auto&) { return numbers.shuffle().prefetch(5); }},
};

class Stop : public ::testing::TestWithParam<Pipe> {
 protected:
  /// Runs a stream for `steps` steps, or up to an error, and stops it. Returns whether there was an
  /// error.
  static bool run(const Dataset& dataset, int steps) {
    const auto stream = dataset.stream({.prefetch = 2, .threads = 3});
    std::vector<Batch> parts;
    try {
      for (int step = 0; step < steps; ++step) stream->next(parts);
    } catch (const Error&) {
      return true;
    }
    return false;
  }

  TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(AfterAnyStep, Stop, ::testing::ValuesIn(kPipes),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Stop, StopsAllThreads) {
  for (int steps = 0; steps <= 9; ++steps) {
    const auto source = std::make_shared<CountingSource>(15);
    EXPECT_FALSE(run(GetParam().words(Dataset::from_source(source), directory_).batch(4), steps));
    EXPECT_EQ(source.use_count(), 1) << "no thread holds the source";
  }
}

TEST_P(Stop, StopsAllThreadsAfterAnError) {
  bool failed = false;
  for (int steps = 0; steps <= 9; ++steps) {
    const auto source = std::make_shared<CountingSource>(15, 0, 7);
    failed = run(GetParam().words(Dataset::from_source(source), directory_).batch(4), steps);
    EXPECT_EQ(source.use_count(), 1);
  }
  EXPECT_TRUE(failed) << "the broken records are reached";
}

}  // namespace
}  // namespace lockstep::inline v0::data
