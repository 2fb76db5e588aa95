#include "lockstep/train/evaluation/record_account.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/record_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
namespace {

using allreduce::Communicator;
using allreduce::run_ranks;
using Ids = std::vector<std::int64_t>;

/// Whether the ranks, each with the ids of one batch for each step, have seen `records` records
/// `times` times.
bool complete(const std::vector<std::vector<Ids>>& ranks, std::int64_t records,
              std::int64_t times = 1) {
  std::vector<int> answers(ranks.size());
  run_ranks(static_cast<int>(ranks.size()), [&](const Communicator& rank) {
    RecordAccount account;
    const auto i = static_cast<std::size_t>(rank.rank());
    for (const Ids& ids : ranks[i]) {
      data::Batch batch;
      batch.record_ids = ids;
      account.add({batch});
    }
    answers[i] = account.is_complete(rank, records, times);
  });
  EXPECT_THAT(answers, ::testing::Each(answers.front()));
  return answers.front() != 0;
}

TEST(RecordAccount, IsCompleteIfAnyRankReadEachRecordOnce) {
  EXPECT_TRUE(complete({{{4, 0}, {2}}, {{1, 3}}}, 5));
  EXPECT_TRUE(complete({{{}}, {{0}}}, 1));
  EXPECT_TRUE(complete({{{0, 1, 2}}, {{2, 1, 0}}}, 3, 2));
}

TEST(RecordAccount, DetectsMissingDuplicateAndForeignRecords) {
  EXPECT_FALSE(complete({{{4, 0}, {2}}, {{1}}}, 5));
  EXPECT_FALSE(complete({{{4, 0}, {2}}, {{1, 1}}}, 5));
  EXPECT_FALSE(complete({{{4, 0}, {2}}, {{1, 5}}}, 5));
  EXPECT_FALSE(complete({{{0, 0, 3, 3}}}, 4)) << "the sum of the ids is right";
  EXPECT_FALSE(complete({{{0, 1}}, {{0, 1}}}, 2));
}

// Hashing the ids of large data sets takes seconds: each rank hashes its share, and reports
// progress.
TEST(RecordAccount, DividesTheIdsBetweenTheRanks) {
  constexpr std::int64_t kRecords = std::int64_t{4} << 20;
  std::array<std::uint64_t, 2> ticks = {};
  run_ranks(2, [&](const Communicator& group) {
    const auto activity = std::make_shared<allreduce::Activity>();
    const Communicator rank = group.watched_by(activity);
    const auto changes_with = [&](std::int64_t records) {
      const std::uint64_t before = activity->state().changes;
      EXPECT_FALSE(RecordAccount().is_complete(rank, records, 1));
      return activity->state().changes - before;
    };
    const std::uint64_t of_one_id = changes_with(1);
    ticks[static_cast<std::size_t>(group.rank())] = changes_with(kRecords) - of_one_id;
  });
  // One tick per 2^20 ids. A single record is on the last rank.
  EXPECT_THAT(ticks, ::testing::ElementsAre(2, 1));
}

TEST(RecordAccount, CanBeCleared) {
  data::Batch batch;
  batch.record_ids = {7};
  RecordAccount account;
  account.add({batch});
  account.clear();
  batch.record_ids = {0};
  account.add({batch});
  run_ranks(1, [&](const Communicator& rank) { EXPECT_TRUE(account.is_complete(rank, 1, 1)); });
}

/// Ten records in two files.
class TwoFiles final : public data::RecordSource {
 public:
  explicit TwoFiles(bool in_files)
      : RecordSource({.spec = data::SampleSpec::classification({1}, 2), .size = 10}) {
    if (in_files) info_.files = {{"a", 4, 400}, {"empty", 0, 0}, {"b", 6, 600}};
  }
  void read(std::int64_t /*record_id*/, data::Sample& /*sample*/) const override {}
};

std::vector<BadFile> gathered(const std::vector<std::vector<data::BadRecord>>& ranks,
                              bool in_files = true) {
  std::vector<std::vector<BadFile>> answers(ranks.size());
  run_ranks(static_cast<int>(ranks.size()), [&](const Communicator& rank) {
    const auto i = static_cast<std::size_t>(rank.rank());
    answers[i] = gather_bad_records(rank, TwoFiles(in_files), ranks[i], 4);
  });
  EXPECT_THAT(answers, ::testing::Each(answers.front()));
  return answers.front();
}

TEST(BadRecordsOfRanks, AreCountedOnceByFile) {
  EXPECT_THAT(gathered({{{8, "eight"}, {1, "one"}}, {{8, "eight"}, {5, "five"}}, {}}),
              ::testing::ElementsAre(BadFile{"a", 1, "one"}, BadFile{"b", 2, "five"}));
  EXPECT_THAT(gathered({{}, {}}), ::testing::IsEmpty());
  EXPECT_THAT(gathered({{{8, "eight"}}, {{1, "one"}}}, false),
              ::testing::ElementsAre(BadFile{"", 2, "one"}));
}

TEST(BadRecordsOfRanks, ExceedTheLimitInTotal) {
  std::vector<std::string> messages(2);
  run_ranks(2, [&](const Communicator& rank) {
    const std::int64_t first = rank.rank() * 3;
    try {
      gather_bad_records(rank, TwoFiles(true), {{first, "x"}, {first + 1, "y"}, {first + 2, "z"}},
                         4);
    } catch (const Error& error) {
      messages[static_cast<std::size_t>(rank.rank())] = error.what();
    }
  });
  EXPECT_THAT(
      messages,
      ::testing::Each(
          "[bad records] expected at most 4 unreadable records; there are more, such as: z"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
