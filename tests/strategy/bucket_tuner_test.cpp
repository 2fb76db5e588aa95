#include "lockstep/train/step/bucket_tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep::inline v0::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Runs steps with times by size, and returns the sizes in the order of their use, with their number
// of steps.
std::vector<std::pair<std::size_t, int>> tune(BucketTuner& tuner,
                                              const std::map<std::size_t, double>& seconds) {
  std::vector<std::pair<std::size_t, int>> used = {{0, 0}};
  for (int step = 0; step < 1000 && !tuner.has_tried_all(); ++step) {
    ++used.back().second;
    const auto known = seconds.find(used.back().first);
    // An occasional pause, which does not affect the median.
    const double time = step % 9 == 0 ? 5.0 : known == seconds.end() ? 1.0 : known->second;
    if (const auto next = tuner.add_step(time)) used.emplace_back(*next, 0);
  }
  return used;
}

TEST(BucketTuner, TriesEverySizeOnceAfterWarmUp) {
  BucketTuner tuner(100 * kMebibyte);
  const auto used = tune(tuner, {});
  ASSERT_EQ(used.size(), 7U);
  EXPECT_EQ(used[0], (std::pair<std::size_t, int>{0, BucketTuner::kWarmUpSteps}));
  const int each = BucketTuner::kSettlingSteps + BucketTuner::kCountedSteps;
  for (std::size_t i = 1; i < used.size(); ++i) {
    EXPECT_EQ(used[i].first, kMebibyte << (i - 1));
    EXPECT_EQ(used[i].second, each);
  }
  EXPECT_FALSE(tuner.add_step(1).has_value());
}

TEST(BucketTuner, ChoosesTheSizeWithTheShortestMedianStep) {
  BucketTuner tuner(100 * kMebibyte);
  tune(tuner, {{8 * kMebibyte, 0.25}, {4 * kMebibyte, 0.5}});
  EXPECT_EQ(tuner.choose(), 8 * kMebibyte);
  EXPECT_THAT(tuner.describe(),
              HasSubstr("8 MiB; median step time with 1 MiB 1000.0 ms, 2 MiB 1000.0 ms, 4 MiB "
                        "500.0 ms, 8 MiB 250.0 ms, 16 MiB 1000.0 ms"));
}

TEST(BucketTuner, UsesTimesOfTheSlowestRank) {
  BucketTuner tuner(3 * kMebibyte);
  tune(tuner, {{kMebibyte, 0.1}, {2 * kMebibyte, 0.2}});
  tuner.seconds_of_sizes() = {0.4, 0.3};  // as all ranks agreed
  EXPECT_EQ(tuner.choose(), 2 * kMebibyte);
}

TEST(BucketTuner, SkipsSizesBeyondTheGradient) {
  EXPECT_THAT(BucketTuner(5 * kMebibyte).sizes(),
              ElementsAre(kMebibyte, 2 * kMebibyte, 4 * kMebibyte));
  EXPECT_THAT(BucketTuner(10).sizes(), ElementsAre(kMebibyte));
}

}  // namespace
}  // namespace lockstep::inline v0::train
