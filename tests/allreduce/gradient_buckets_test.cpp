#include "lockstep/allreduce/buckets/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"
#include "tests/allreduce/wrapped_groups.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
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

TEST(PlanBuckets, HasOneParameterPerBucketForSmallLimits) {
  EXPECT_THAT(
      entries_of(plan_buckets(std::vector<std::size_t>{3, 3, 3}, {.first_bytes = 1, .bytes = 1})),
      ElementsAre(1, 1, 1));
}

TEST(PlanBuckets, KeepsParametersWithoutElements) {
  EXPECT_THAT(
      entries_of(plan_buckets(std::vector<std::size_t>{0, 5, 0}, {.first_bytes = 4, .bytes = 4})),
      ElementsAre(2, 1));
  EXPECT_THAT(plan_buckets({}, {}), IsEmpty());
}

// Four parameters of 2, 3, 1 and 4 elements in buckets of at least 4 elements: {2, 3}, {1, 4}.
const std::vector<std::size_t> kOffsets = {0, 2, 5, 6};
constexpr std::size_t kElements = 10;
const BucketOptions kOptions = {.first_bytes = 16, .bytes = 16};

TEST(GradientBuckets, LaunchesABucketWhenItsLastParameterIsReady) {
  std::vector<float> gradients(kElements, 1.0f);
  GradientBuckets buckets(make_overlapping_group(1).front(), gradients, kOffsets, kOptions);
  ASSERT_THAT(entries_of(buckets.buckets()), ElementsAre(2, 2));
  buckets.ready(0);
  EXPECT_EQ(buckets.launched(), 0U);
  buckets.ready(1);
  EXPECT_EQ(buckets.launched(), 1U);
  buckets.ready(2);
  EXPECT_EQ(buckets.launched(), 1U);
  buckets.ready(3);
  EXPECT_EQ(buckets.launched(), 1U) << "the last bucket has nothing to overlap with";
  buckets.finish();
  EXPECT_EQ(buckets.launched(), 2U);
}

TEST(GradientBuckets, LaunchesBucketsInOrderForAnyReadyOrder) {
  std::vector<float> gradients(kElements);
  GradientBuckets buckets(make_overlapping_group(1).front(), gradients, kOffsets,
                          {.first_bytes = 4, .bytes = 4});
  ASSERT_EQ(buckets.buckets().size(), 4U);
  for (const std::size_t parameter : {3, 2, 1}) {
    buckets.ready(parameter);
    EXPECT_EQ(buckets.launched(), 0U);
  }
  buckets.ready(0);
  EXPECT_EQ(buckets.launched(), 3U);
  buckets.finish();
  EXPECT_EQ(buckets.launched(), 4U);
}

TEST(GradientBuckets, LaunchesAtTheEndIfMembersShareMemory) {
  run_ranks(2, [](const Communicator& group) {
    std::vector<float> gradients(kElements, 1.0f);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    for (std::size_t parameter = 0; parameter < 4; ++parameter) buckets.ready(parameter);
    EXPECT_EQ(buckets.launched(), 0U);
    EXPECT_EQ(gradients[0], 1.0f);
    buckets.finish();
    EXPECT_EQ(buckets.launched(), 2U);
    EXPECT_EQ(gradients[0], 2.0f);
  });
}

// A parameter's gradient is written until right before ready(): an early reduction would be a data
// race and compute a wrong sum.
TEST(GradientBuckets, ReadsNoGradientBeforeItIsReady) {
  constexpr std::size_t kParameters = 40;
  constexpr std::size_t kEach = 3000;
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < kParameters; ++i) offsets.push_back(i * kEach);
  run_members(make_overlapping_group(3), [&](const Communicator& group) {
    std::vector<float> gradients(kParameters * kEach);
    GradientBuckets buckets(group, gradients, offsets,
                            {.first_bytes = 4 * kEach, .bytes = 12 * kEach});
    for (int step = 0; step < 20; ++step) {
      for (std::size_t parameter = 0; parameter < kParameters; ++parameter) {
        for (std::size_t i = 0; i < kEach; ++i)
          gradients[parameter * kEach + i] =
              static_cast<float>(group.rank() + step) + static_cast<float>(i % 5);
        buckets.ready(parameter);
      }
      buckets.finish();
      for (std::size_t i = 0; i < gradients.size(); ++i)
        ASSERT_EQ(gradients[i],
                  static_cast<float>(3 + 3 * step) + 3 * static_cast<float>(i % kEach % 5))
            << i;
    }
    EXPECT_EQ(buckets.launched(), 20 * buckets.buckets().size());
  });
}

// Between buckets in flight, and if all buckets wait for the end of the step.
TEST(GradientBuckets, SumsOtherValuesInTheMiddleOfAStep) {
  for (const bool overlaps : {true, false}) {
    run_members(
        overlaps ? make_overlapping_group(3) : make_in_process_group(3),
        [](const Communicator& group) {
          std::vector<float> gradients(kElements);
          GradientBuckets buckets(group, gradients, kOffsets, {.first_bytes = 4, .bytes = 4});
          device::Stream stream{device::Device{}};
          for (int step = 0; step < 20; ++step) {
            std::ranges::fill(gradients, 1.0F);
            for (std::size_t parameter = 0; parameter < 4; ++parameter) {
              buckets.ready(parameter);
              std::vector<float> others(parameter * 100, static_cast<float>(group.rank() + step));
              buckets.sum(others, stream);
              EXPECT_EQ(others,
                        std::vector<float>(parameter * 100, static_cast<float>(3 + 3 * step)));
            }
            buckets.finish();
            EXPECT_EQ(gradients, std::vector<float>(kElements, 3.0F));
          }
          EXPECT_EQ(buckets.launched(), 80U) << "other values are not a bucket";
          EXPECT_GT(buckets.times().exposed, 0);
        });
  }
}

TEST(GradientBuckets, CanBeReplannedBetweenSteps) {
  run_members(make_overlapping_group(2), [](const Communicator& group) {
    std::vector<float> gradients(kElements);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    std::size_t launched = 0;
    for (const std::size_t bytes : {4U, 1000U, 16U}) {
      buckets.set_bytes(bytes);
      std::ranges::fill(gradients, 1.5F);
      for (std::size_t parameter = 0; parameter < 4; ++parameter) buckets.ready(parameter);
      buckets.finish();
      EXPECT_EQ(gradients, std::vector<float>(kElements, 3.0F)) << bytes;
      launched += buckets.buckets().size();
      EXPECT_EQ(buckets.launched(), launched);
      // A resumed training starts like this and must sum in the same order.
      BucketOptions options = kOptions;
      options.bytes = bytes;
      options.first_bytes = std::min(options.first_bytes, bytes);
      const GradientBuckets fresh(group, gradients, kOffsets, options);
      EXPECT_EQ(entries_of(buckets.buckets()), entries_of(fresh.buckets())) << bytes;
    }
  });
}

TEST(GradientBuckets, MeasuresExposedAndWaitedTime) {
  const auto first_member = std::make_shared<Activity>();
  std::array<double, 2> waited{};
  run_members(make_overlapping_group(2), [&](const Communicator& member) {
    const bool is_first = member.rank() == 0;
    const Communicator group = is_first ? member.watched_by(first_member) : member;
    std::vector<float> gradients(kElements);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    // The second member arrives when the first is in a reduction, and has had time to wait there.
    while (!is_first && !first_member->state().in_collective()) std::this_thread::yield();
    if (!is_first) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    buckets.finish();
    const CommunicationTimes first = buckets.times();
    EXPECT_GT(first.exposed, 0);
    EXPECT_LE(first.waited, first.exposed);
    waited[static_cast<std::size_t>(member.rank())] = first.waited;
    buckets.finish();
    EXPECT_GT(buckets.times().exposed, first.exposed);
  });
  EXPECT_GT(waited[0] + waited[1], 0);
}

class NarrowBuckets : public ::testing::TestWithParam<WireType> {};

TEST_P(NarrowBuckets, ErrorIsBoundedByTheType) {
  // Gradients of very different sizes in each bucket, some far below the range of float16.
  const auto gradient = [](int rank, std::size_t i) {
    return std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) *
           (i % 100 < 50 ? 1e-6F : 3e-9F);
  };
  constexpr std::size_t kCount = 1000;
  run_members(make_overlapping_group(3), [&](const Communicator& group) {
    std::vector<float> gradients(kCount);
    const std::vector<std::size_t> offsets = {0, 500, 990};
    GradientBuckets buckets(group, gradients, offsets,
                            {.first_bytes = 1, .bytes = 1, .wire = GetParam()}, 1);
    EXPECT_THAT(entries_of(buckets.buckets()), ElementsAre(1, 1, 1));
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < kCount; ++i)
        gradients[i] = i < 990 ? gradient(group.rank(), i) : 16777215.0F / 3;
      if (step == 1) buckets.measure_wire_error();
      buckets.finish();
      for (std::size_t i = 0; i < 990; ++i) {
        const float exact = gradient(0, i) + gradient(1, i) + gradient(2, i);
        ASSERT_NEAR(gradients[i], exact, 3e-6F * 0x1p-7F) << i;
      }
      for (std::size_t i = 990; i < kCount; ++i)
        ASSERT_EQ(gradients[i], 16777215.0F) << "sent as float32";
    }
    EXPECT_GT(buckets.wire_error().relative, 0);
    EXPECT_LT(buckets.wire_error().relative, GetParam() == WireType::float16 ? 1e-3 : 5e-3);
    EXPECT_GT(buckets.wire_error().largest, 0);
  });
}

TEST_P(NarrowBuckets, PropagateNonFiniteValues) {
  run_members(make_overlapping_group(2), [](const Communicator& group) {
    std::vector<float> gradients(kElements, 1.0F);
    gradients[1] = group.rank() == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
    gradients[7] = group.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
    GradientBuckets buckets(group, gradients, kOffsets,
                            {.first_bytes = 16, .bytes = 16, .wire = GetParam()});
    buckets.finish();
    EXPECT_EQ(gradients[0], 2.0F);
    EXPECT_TRUE(std::isinf(gradients[1]));
    EXPECT_TRUE(std::isnan(gradients[7]));
  });
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowBuckets,
                         ::testing::Values(WireType::bfloat16, WireType::float16),
                         [](const auto& type) { return to_string(type.param); });

TEST(ParseWireType, RoundTripsAndListsTheNames) {
  for (const WireType type : {WireType::float32, WireType::bfloat16, WireType::float16})
    EXPECT_EQ(parse_name<WireType>("comm-dtype", to_string(type)), type);
  EXPECT_EQ(parse_name<WireType>("comm-dtype", "bf16"), WireType::bfloat16);
  EXPECT_EQ(error_of([] { parse_name<WireType>("comm-dtype", "int8"); }),
            "[comm-dtype] expected float32, bfloat16 or float16, got \"int8\"");
}

TEST(GradientBuckets, SumsEachStepOfEveryReplica) {
  run_ranks(3, [](const Communicator& group) {
    std::vector<float> gradients(kElements);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    for (int step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < kElements; ++i)
        gradients[i] = static_cast<float>(group.rank() + static_cast<int>(i) * 3 + step);
      // On replica 1 parameters become ready in another order, and replica 2 has no gradient for
      // the last one.
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
  run_ranks(2, [](const Communicator& group) {
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

TEST(GradientBuckets, RejectsAParameterTwiceOrOutOfRange) {
  std::vector<float> gradients(kElements);
  GradientBuckets buckets(make_in_process_group(1).front(), gradients, kOffsets, kOptions);
  buckets.ready(0);
  EXPECT_THAT(error_of([&] { buckets.ready(0); }), HasSubstr("!is_ready_[parameter]"));
  EXPECT_THAT(error_of([&] { buckets.ready(4); }), HasSubstr("4 and 4"));
}

TEST(GradientBuckets, RejectsOffsetsOutsideTheGradient) {
  std::vector<float> gradients(kElements);
  const Communicator group = make_in_process_group(1).front();
  EXPECT_THROW(GradientBuckets(group, gradients, std::vector<std::size_t>{1, 2}), CheckFailure);
  EXPECT_THROW(GradientBuckets(group, gradients, std::vector<std::size_t>{0, 11}), CheckFailure);
  EXPECT_THROW(GradientBuckets(group, gradients, std::vector<std::size_t>{}), CheckFailure);
}

TEST(GradientBuckets, ReportsAFailedReduction) {
  run_ranks(2, [](const Communicator& group) {
    std::vector<float> gradients(kElements);
    GradientBuckets buckets(group, gradients, kOffsets, kOptions);
    if (group.rank() == 1) return group.abort("its device failed");
    EXPECT_THAT(error_of([&] { buckets.finish(); }), HasSubstr("member 1 left: its device failed"));
  });
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
