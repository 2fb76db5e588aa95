#include "allreduce/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/error.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::size_t> entries_of(std::span<const BucketRange> buckets) {
  std::vector<std::size_t> entries;
  for (const BucketRange& bucket : buckets) entries.push_back(bucket.entries);
  return entries;
}

TEST(PlanBuckets, ClosesABucketThatHasReachedItsSize) {
  // In MiB of float32; the limits are 1 for the first bucket and 25 for the others.
  std::vector<std::size_t> counts;
  for (const double mebibytes : {.4, .4, .4, 10., 10., 10., 1., 30., .1})
    counts.push_back(static_cast<std::size_t>(std::lround(mebibytes * 262144)));
  const std::vector<BucketRange> buckets = plan_buckets(counts, {});
  EXPECT_THAT(entries_of(buckets), ElementsAre(3, 3, 2, 1));
  std::size_t end = 0;
  for (const BucketRange& bucket : buckets) {
    EXPECT_EQ(bucket.begin, end);
    end = bucket.end;
  }
  EXPECT_EQ(buckets.back().end - buckets.back().begin, counts.back());
}

TEST(PlanBuckets, TakesEveryParameterAloneWhenLimitsAreSmall) {
  EXPECT_THAT(entries_of(plan_buckets(std::vector<std::size_t>{3, 3, 3}, {.first_bytes = 1, .bytes = 1})),
              ElementsAre(1, 1, 1));
}

TEST(PlanBuckets, KeepsParametersWithoutElements) {
  EXPECT_THAT(entries_of(plan_buckets(std::vector<std::size_t>{0, 5, 0}, {.first_bytes = 4, .bytes = 4})),
              ElementsAre(2, 1));
  EXPECT_THAT(plan_buckets({}, {}), IsEmpty());
}

// Four parameters of 2, 3, 1 and 4 elements in buckets of at least 4 elements: {2, 3}, {1, 4}.
const std::vector<std::size_t> kOffsets = {0, 2, 5, 6};
constexpr std::size_t kElements = 10;
const BucketOptions kOptions = {.first_bytes = 16, .bytes = 16};

TEST(GradientBuckets, LaunchesABucketWhenItsLastParameterIsReady) {
  std::vector<float> gradients(kElements, 1.0f);
  GradientBuckets buckets(make_in_process_group(1).front(), gradients, kOffsets, kOptions);
  ASSERT_THAT(entries_of(buckets.buckets()), ElementsAre(2, 2));
  buckets.ready(0);
  EXPECT_EQ(buckets.launched(), 0U);
  buckets.ready(1);
  EXPECT_EQ(buckets.launched(), 1U);
  buckets.ready(2);
  EXPECT_EQ(buckets.launched(), 1U);
  buckets.ready(3);
  EXPECT_EQ(buckets.launched(), 2U);
  buckets.finish();
  EXPECT_EQ(buckets.launched(), 2U);
}

TEST(GradientBuckets, LaunchesBucketsInOrderWhateverIsReadyFirst) {
  std::vector<float> gradients(kElements);
  GradientBuckets buckets(make_in_process_group(1).front(), gradients, kOffsets, kOptions);
  for (const std::size_t parameter : {3, 2, 1}) {
    buckets.ready(parameter);
    EXPECT_EQ(buckets.launched(), 0U);
  }
  buckets.ready(0);
  EXPECT_EQ(buckets.launched(), 2U);
}

TEST(GradientBuckets, SumsEachStepOfEveryReplica) {
  run_ranks(3, Route::in_process, [](const Communicator& group) {
    std::vector<float> gradients(kElements);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    for (int step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < kElements; ++i)
        gradients[i] = static_cast<float>(group.rank() + static_cast<int>(i) * 3 + step);
      // On replica 1 parameters become ready in another order, and replica 2 has no gradient for the last one.
      if (group.rank() == 1)
        for (const std::size_t parameter : {1, 0, 3, 2}) buckets.ready(parameter);
      else
        for (std::size_t parameter = 0; parameter < (group.rank() == 2 ? 3U : 4U); ++parameter)
          buckets.ready(parameter);
      buckets.finish();
      for (std::size_t i = 0; i < kElements; ++i)
        ASSERT_EQ(gradients[i], static_cast<float>(3 + 9 * static_cast<int>(i) + 3 * step));
    }
    EXPECT_EQ(buckets.launched(), 10U);
  });
}

TEST(GradientBuckets, FinishesAStepInWhichNothingWasReady) {
  run_ranks(2, Route::in_process, [](const Communicator& group) {
    std::vector<float> gradients(kElements, 0.0f);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    buckets.finish();
    EXPECT_EQ(buckets.launched(), 2U);
    EXPECT_EQ(gradients, std::vector<float>(kElements, 0.0f));
  });
}

TEST(GradientBuckets, AcceptsAModelWithoutParameters) {
  GradientBuckets buckets(make_in_process_group(1).front(), {}, {});
  buckets.finish();
  EXPECT_EQ(buckets.launched(), 0U);
}

TEST(GradientBuckets, RefusesAParameterTwiceOrOutOfRange) {
  std::vector<float> gradients(kElements);
  GradientBuckets buckets(make_in_process_group(1).front(), gradients, kOffsets, kOptions);
  buckets.ready(0);
  EXPECT_THAT(error_of([&] { buckets.ready(0); }), HasSubstr("!is_ready_[parameter]"));
  EXPECT_THAT(error_of([&] { buckets.ready(4); }), HasSubstr("4 and 4"));
}

TEST(GradientBuckets, RefusesOffsetsThatDoNotFitTheGradient) {
  std::vector<float> gradients(kElements);
  const Communicator group = make_in_process_group(1).front();
  EXPECT_THROW(GradientBuckets(group, gradients, std::vector<std::size_t>{1, 2}), CheckFailure);
  EXPECT_THROW(GradientBuckets(group, gradients, std::vector<std::size_t>{0, 11}), CheckFailure);
  EXPECT_THROW(GradientBuckets(group, gradients, std::vector<std::size_t>{}), CheckFailure);
}

TEST(GradientBuckets, ReportsAFailedReduction) {
  run_ranks(2, Route::in_process, [](const Communicator& group) {
    std::vector<float> gradients(kElements);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    if (group.rank() == 1) return group.abort("its device failed");
    EXPECT_THAT(error_of([&] { buckets.finish(); }), HasSubstr("member 1 left: its device failed"));
  });
}

}  // namespace
}  // namespace lockstep::allreduce
