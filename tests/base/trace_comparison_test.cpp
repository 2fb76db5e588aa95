#include "lockstep/base/trace/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::trace {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t kSecond = 1'000'000'000;

/// A bucket of step 100, at a time in seconds.
Event of_bucket(EventKind kind, int bucket, int time) {
  return {.time = time * kSecond,
          .name = "all_reduce",
          .kind = kind,
          .number = bucket,
          .step = 100,
          .sequence = static_cast<std::uint64_t>(400 + bucket)};
}

/// A recording at 20 s, of a rank whose thread of reductions has these events.
Recording recording_of(int rank, std::vector<Event> events) {
  Recording recording;
  recording.rank = {.job = "h-1", .host = "h", .rank = rank, .ranks = 3};
  recording.reason = "stall";
  recording.seconds_since_1970 = 1e9;
  recording.time = 20 * kSecond;
  recording.step = 100;
  recording.buckets = {"fc2", "fc1", "conv2", "conv1"};
  recording.threads = {{.thread = "reductions", .events = std::move(events)}};
  return recording;
}

const std::vector<Event> kInBucket2 = {of_bucket(EventKind::begin, 1, 1),
                                       of_bucket(EventKind::end, 1, 2),
                                       of_bucket(EventKind::begin, 2, 3)};
const std::vector<Event> kInBucket3 = {of_bucket(EventKind::begin, 2, 3),
                                       of_bucket(EventKind::end, 2, 4),
                                       of_bucket(EventKind::begin, 3, 5)};

TEST(CompareRecordings, NamesTheRankThatNeverLeftABucket) {
  EXPECT_THAT(
      compare_recordings(
          {recording_of(2, kInBucket3), recording_of(0, kInBucket2), recording_of(1, kInBucket3)}),
      Contains("ranks 1, 2 entered bucket 3 (conv1) of step 100; rank 0 never left bucket 2 "
               "(conv2)"));
}

TEST(CompareRecordings, NamesTheRankThatDidNotEnter) {
  std::vector<Event> left = kInBucket2;
  left.push_back(of_bucket(EventKind::end, 2, 4));
  EXPECT_THAT(compare_recordings({recording_of(0, left), recording_of(1, kInBucket3)}),
              Contains("rank 1 entered bucket 3 (conv1) of step 100; rank 0 left bucket 2 (conv2) "
                       "and entered none since"));
}

TEST(CompareRecordings, NamesTheRankWhoseCollectiveFailed) {
  std::vector<Event> failed = kInBucket3;
  failed.push_back({.name = "failed", .kind = EventKind::mark, .step = 100, .sequence = 403});
  failed.push_back(of_bucket(EventKind::end, 3, 6));
  const Recording recording = recording_of(0, failed);
  ASSERT_TRUE(last_collective(recording).has_value());
  EXPECT_FALSE(last_collective(recording)->has_left);
  EXPECT_THAT(compare_recordings({recording, recording_of(1, kInBucket3)}),
              Contains("all these ranks entered bucket 3 (conv1) of step 100, and no later "
                       "collective: rank 0 failed in it; rank 1 did not leave it"));
}

TEST(CompareRecordings, NamesRanksWithoutARecordingAndOtherJobs) {
  Recording other = recording_of(1, {});
  other.rank.job = "h-0";
  other.seconds_since_1970 = 1;
  EXPECT_THAT(compare_recordings({recording_of(0, kInBucket2), other}),
              AllOf(Contains("job h-1, 1 of 3 ranks, recorded until 2001-09-09 01:46:40 UTC"),
                    Contains("1 older recording of other jobs left out"),
                    Contains(StartsWith("ranks 1, 2 left no recording here: killed, or in "))));
}

TEST(CompareRecordings, SayWhereEachThreadIsAndSinceWhen) {
  Recording recording = recording_of(0, kInBucket2);
  recording.threads.push_back(
      {.thread = "main",
       .events = {{.time = kSecond, .name = "input", .kind = EventKind::end},
                  {.time = 2 * kSecond, .name = "step", .kind = EventKind::begin},
                  {.time = 2 * kSecond, .name = "input", .kind = EventKind::begin},
                  {.time = 3 * kSecond, .name = "input", .kind = EventKind::end},
                  {.time = 3 * kSecond, .name = "compute", .kind = EventKind::begin},
                  {.time = 4 * kSecond, .name = "fc1 backward", .kind = EventKind::lap},
                  {.time = 7 * kSecond, .name = "conv2 backward", .kind = EventKind::lap}}});
  EXPECT_THAT(compare_recordings({recording}).back(),
              AllOf(HasSubstr("rank 0 on h, process 0: step 100"),
                    HasSubstr("\n  reductions: all_reduce 2, for 17 s"),
                    HasSubstr("\n  main: step > compute > conv2 backward, for 13 s")));
}

TEST(CompareRecordings, OfRanksThatCommunicateNothing) {
  EXPECT_THAT(compare_recordings({recording_of(0, {})}),
              Contains("no rank has entered a collective"));
}

}  // namespace
}  // namespace lockstep::trace
