#include "apps/lockstep/inspect/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t kSecond = 1'000'000'000;

/// An event of a bucket in step 100, at a time in seconds.
trace::Event of_bucket(trace::EventKind kind, int bucket, int time) {
  return {.time = time * kSecond,
          .name = "all_reduce",
          .kind = kind,
          .number = bucket,
          .step = 100,
          .sequence = static_cast<std::uint64_t>(400 + bucket)};
}

/// A recording at 20 s of a rank whose reduction thread has these events.
trace::Recording recording_of(int rank, std::vector<trace::Event> events) {
  trace::Recording recording;
  recording.rank = {.job = "h-1", .host = "h", .rank = rank, .ranks = 3};
  recording.reason = "stall";
  recording.seconds_since_1970 = 1e9;
  recording.time = 20 * kSecond;
  recording.step = 100;
  recording.buckets = {"fc2", "fc1", "conv2", "conv1"};
  recording.threads = {{.thread = "reductions", .events = std::move(events)}};
  return recording;
}

const std::vector<trace::Event> kInBucket2 = {of_bucket(trace::EventKind::begin, 1, 1),
                                              of_bucket(trace::EventKind::end, 1, 2),
                                              of_bucket(trace::EventKind::begin, 2, 3)};
const std::vector<trace::Event> kInBucket3 = {of_bucket(trace::EventKind::begin, 2, 3),
                                              of_bucket(trace::EventKind::end, 2, 4),
                                              of_bucket(trace::EventKind::begin, 3, 5)};

TEST(CompareRecordings, NamesTheRankThatNeverLeftABucket) {
  EXPECT_THAT(
      compare_recordings(
          {recording_of(2, kInBucket3), recording_of(0, kInBucket2), recording_of(1, kInBucket3)}),
      Contains("ranks 1, 2 entered bucket 3 (conv1) of step 100; rank 0 never left bucket 2 "
               "(conv2)"));
}

TEST(CompareRecordings, NamesTheRankThatDidNotEnter) {
  std::vector<trace::Event> left = kInBucket2;
  left.push_back(of_bucket(trace::EventKind::end, 2, 4));
  EXPECT_THAT(compare_recordings({recording_of(0, left), recording_of(1, kInBucket3)}),
              Contains("rank 1 entered bucket 3 (conv1) of step 100; rank 0 left bucket 2 (conv2) "
                       "and entered none since"));
}

TEST(CompareRecordings, NamesTheRankWhoseCollectiveFailed) {
  std::vector<trace::Event> failed = kInBucket3;
  failed.push_back(
      {.name = "failed", .kind = trace::EventKind::mark, .step = 100, .sequence = 403});
  failed.push_back(of_bucket(trace::EventKind::end, 3, 6));
  const trace::Recording recording = recording_of(0, failed);
  ASSERT_TRUE(last_collective(recording).has_value());
  EXPECT_FALSE(last_collective(recording)->has_left);
  EXPECT_THAT(compare_recordings({recording, recording_of(1, kInBucket3)}),
              Contains("all these ranks entered bucket 3 (conv1) of step 100, and no later "
                       "collective: rank 0 failed in it; rank 1 did not leave it"));
}

TEST(CompareRecordings, NamesRanksWithoutARecordingAndOtherJobs) {
  trace::Recording other = recording_of(1, {});
  other.rank.job = "h-0";
  other.seconds_since_1970 = 1;
  EXPECT_THAT(compare_recordings({recording_of(0, kInBucket2), other}),
              AllOf(Contains("job h-1, 1 of 3 ranks, recorded until 2001-09-09 01:46:40 UTC"),
                    Contains("skipped 1 older recording of other jobs"),
                    Contains(StartsWith("ranks 1, 2 left no recording here: killed, or in "))));
}

/// The recording of a rank for `reason`, whose main thread was in `spans`.
trace::Recording with(trace::Recording recording, std::string_view reason,
                      const std::vector<const char*>& spans) {
  recording.reason = reason;
  std::vector<trace::Event> events;
  for (const char* const span : spans)
    events.push_back({.time = (1 + std::ssize(events)) * kSecond,
                      .name = span,
                      .kind = trace::EventKind::begin});
  recording.threads.push_back({.thread = "main", .events = std::move(events)});
  return recording;
}

/// A rank that has left bucket 2 and is not in bucket 3 yet.
trace::Recording before_bucket_3(int rank) {
  std::vector<trace::Event> events = kInBucket2;
  events.push_back(of_bucket(trace::EventKind::end, 2, 4));
  return recording_of(rank, events);
}

TEST(CompareRecordings, SkipsRecordingsRequestedBeforeTheFailure) {
  trace::Recording asked = recording_of(0, kInBucket2);
  asked.reason = trace::kRequestReason;
  asked.seconds_since_1970 -= 60;
  const std::vector<std::string> lines = compare_recordings({asked, recording_of(1, kInBucket3)});
  EXPECT_THAT(lines, Contains("skipped 1 recording requested before the failure"));
  EXPECT_THAT(lines, Contains(StartsWith("ranks 0, 2 left no recording here: killed")));
  EXPECT_THAT(lines, Each(Not(HasSubstr("never left bucket 2"))));
  asked.seconds_since_1970 += 59;
  EXPECT_THAT(compare_recordings({asked, recording_of(1, kInBucket3)}),
              Contains(HasSubstr("rank 0 never left bucket 2")));
}

// Recordings of ranks if one is killed, stalls before a collective, or throws an exception.
TEST(CompareRecordings, ExplainsAKilledRank) {
  const std::string lost = "[watchdog] expected every rank to stay connected; rank 1 is gone";
  const std::vector<std::string> lines =
      compare_recordings({with(recording_of(0, kInBucket3), lost, {"step", "compute"}),
                          with(recording_of(2, kInBucket3), lost, {"step", "compute"})});
  EXPECT_THAT(lines, Contains("ranks 0, 2 recorded because of: " + lost));
  EXPECT_THAT(lines, Contains(StartsWith("rank 1 left no recording here: killed, or in ")));
  EXPECT_THAT(lines, Contains("all these ranks entered bucket 3 (conv1) of step 100, and no later "
                              "collective: ranks 0, 2 did not leave it"));
}

TEST(CompareRecordings, ExplainsAStallBeforeACollective) {
  const std::string stalled = "[watchdog] expected progress within 120 s; rank 1 is in input";
  EXPECT_THAT(
      compare_recordings({with(recording_of(0, kInBucket3), stalled, {"step", "compute"}),
                          with(before_bucket_3(1), stalled, {"step", "input"}),
                          with(recording_of(2, kInBucket3), stalled, {"step", "compute"})}),
      Contains("ranks 0, 2 entered bucket 3 (conv1) of step 100; rank 1 left bucket 2 (conv2) and "
               "entered none since, and is in step > input"));
}

TEST(CompareRecordings, ExplainsAnExceptionInOneRank) {
  const std::string reason = "[a.tfrecord] expected a record, got 3 bytes";
  const std::vector<std::string> lines =
      compare_recordings({with(recording_of(0, kInBucket3), trace::kBystanderReason, {"step"}),
                          with(before_bucket_3(1), reason, {}),
                          with(recording_of(2, kInBucket3), trace::kBystanderReason, {"step"})});
  EXPECT_THAT(lines, Contains("ranks 0, 2 recorded because of: another rank has failed\n"
                              "rank 1 recorded because of: " +
                              reason));
  EXPECT_THAT(lines, Contains("rank 1 failed; ranks 0, 2 did not, and recorded because of that"));
  EXPECT_THAT(lines, Contains("ranks 0, 2 entered bucket 3 (conv1) of step 100; rank 1 left bucket "
                              "2 (conv2) and entered none since"));
}

TEST(CompareRecordings, NamesTheFailedRankEvenWithoutItsRecording) {
  EXPECT_THAT(
      compare_recordings({with(recording_of(0, kInBucket3), trace::kBystanderReason, {"step"}),
                          with(recording_of(2, kInBucket3), trace::kBystanderReason, {"step"})}),
      Contains("rank 1 failed or was killed; ranks 0, 2 did not, and recorded because of "
               "that"));
}

TEST(ComparisonJson, HasRanksReasonsLastCollectivesAndReading) {
  trace::Recording other = recording_of(1, {});
  other.rank.job = "h-0";
  other.seconds_since_1970 = 1;
  const nlohmann::ordered_json found =
      comparison_json({with(recording_of(2, kInBucket3), "stall", {"step", "compute"}),
                       with(before_bucket_3(0), "stall", {"step", "input"}), other},
                      2);
  EXPECT_EQ(found["job"], "h-1");
  EXPECT_EQ(found["size"], 3);
  EXPECT_EQ(found["time"], 1e9);
  EXPECT_EQ(found["older_recordings"], 1);
  EXPECT_EQ(found["missing"].dump(), "[1]");
  EXPECT_EQ(found["reasons"].dump(), R"([{"reason":"stall","ranks":[0,2]}])");
  EXPECT_EQ(found["reading"].dump(),
            R"(["rank 2 entered bucket 3 (conv1) of step 100; rank 0 left bucket 2 (conv2) and )"
            R"(entered none since, and is in step > input"])");
  ASSERT_EQ(found["ranks"].size(), 2U);
  const nlohmann::ordered_json& first = found["ranks"][0];
  EXPECT_EQ(first["rank"], 0);
  EXPECT_EQ(first["host"], "h");
  EXPECT_EQ(first["reason"], "stall");
  EXPECT_EQ(first["step"], 100);
  EXPECT_EQ(first["cut_off"], false);
  EXPECT_EQ(first["last_collective"].dump(),
            R"({"collective":402,"name":"all_reduce","bucket":2,"contents":"conv2","step":100,)"
            R"("state":"left"})");
  EXPECT_EQ(first["threads"][0].dump(),
            R"({"name":"main","spans":["step","input"],"seconds":18.0})");
  ASSERT_EQ(first["events"].size(), 2U);
  EXPECT_EQ(first["events"][1].dump(),
            R"({"seconds":-16.0,"thread":"reductions","kind":"end","name":"all_reduce","step":100,)"
            R"("number":2,"collective":402})");
  EXPECT_EQ(found["ranks"][1]["last_collective"]["state"], "entered");
}

TEST(ComparisonJson, HasNoCollectiveIfARankHasNone) {
  const nlohmann::ordered_json found = comparison_json({recording_of(0, {})}, 0);
  EXPECT_TRUE(found["ranks"][0]["last_collective"].is_null());
  EXPECT_FALSE(found["ranks"][0].contains("events"));
}

TEST(CompareRecordings, ReportsOpenSpansOfEachThreadAndTheirDuration) {
  trace::Recording recording = recording_of(0, kInBucket2);
  recording.threads.push_back(
      {.thread = "main",
       .events = {{.time = kSecond, .name = "input", .kind = trace::EventKind::end},
                  {.time = 2 * kSecond, .name = "step", .kind = trace::EventKind::begin},
                  {.time = 2 * kSecond, .name = "input", .kind = trace::EventKind::begin},
                  {.time = 3 * kSecond, .name = "input", .kind = trace::EventKind::end},
                  {.time = 3 * kSecond, .name = "compute", .kind = trace::EventKind::begin},
                  {.time = 4 * kSecond, .name = "fc1 backward", .kind = trace::EventKind::lap},
                  {.time = 7 * kSecond, .name = "conv2 backward", .kind = trace::EventKind::lap}}});
  EXPECT_THAT(compare_recordings({recording}).back(),
              AllOf(HasSubstr("rank 0 on h, process 0: step 100"),
                    HasSubstr("\n  reductions: all_reduce 2, for 17 s"),
                    HasSubstr("\n  main: step > compute > conv2 backward, for 13 s")));
}

TEST(CompareRecordings, ReportsRanksWithoutCollectives) {
  EXPECT_THAT(compare_recordings({recording_of(0, {})}),
              Contains("no rank has entered a collective"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
