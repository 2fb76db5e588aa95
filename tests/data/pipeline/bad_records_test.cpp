#include "lockstep/data/pipeline/batch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>

#include "lockstep/data/pipeline/mixup.h"
#include "lockstep/data/sample/record_source.h"
#include "tests/data/counting_source.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::ElementsAre;

/// Record i cannot be read if `bad` contains it.
class PartlyBadSource final : public RecordSource {
 public:
  PartlyBadSource(std::int64_t records, std::set<std::int64_t> bad,
                  ErrorCategory category = ErrorCategory::data)
      : good_(records), bad_(std::move(bad)), category_(category) {
    info_ = good_.info();
    info_.description = "partly bad";
  }
  void read(std::int64_t record_id, Sample& sample) const override {
    if (bad_.contains(record_id))
      throw Error(category_, "file: record " + std::to_string(record_id), "expected intact data",
                  "its CRC differs");
    good_.read(record_id, sample);
  }

 private:
  CountingSource good_;
  std::set<std::int64_t> bad_;
  ErrorCategory category_;
};

Dataset partly_bad(std::int64_t records, std::set<std::int64_t> bad, std::int64_t batch = 4) {
  return Dataset::from_source(std::make_shared<PartlyBadSource>(records, std::move(bad)))
      .batch(batch);
}

TEST(BadRecords, AreErrorsUnlessTheyMayBeSkipped) {
  const Dataset dataset = partly_bad(8, {5});
  EXPECT_EQ(data_error_of([&] { ids_of(dataset, epochs(dataset, 1)); }),
            "[file: record 5] expected intact data; its CRC differs");
}

TEST(BadRecords, AreReplacedByTheNextGoodOnes) {
  const Dataset dataset = partly_bad(10, {2, 5, 6, 9}).skip_bad_records(4);
  const auto stream = dataset.stream(epochs(dataset, 2));
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].record_ids, ElementsAre(0, 1, 3, 3));
  EXPECT_THAT(copy(parts[0].features()), ElementsAre(0, 0, 1, 2, 3, 6, 3, 6));
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].record_ids, ElementsAre(4, 7, 7, 7));
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].record_ids, ElementsAre(8, 0));
  while (stream->next(parts)) {
  }
  const auto bad = stream->bad_records();  // two epochs, each record once
  ASSERT_EQ(bad.size(), 4u);
  EXPECT_EQ(bad[1].record_id, 5);
  EXPECT_EQ(bad[1].problem, "[file: record 5] expected intact data; its CRC differs");
}

TEST(BadRecords, AreReplacedAsPartnersToo) {
  constexpr std::int64_t kRecords = 40;
  const std::set<std::int64_t> bad = {2, 5, 6, 39};
  const auto good = [&](std::int64_t id) {
    while (bad.contains(id)) id = (id + 1) % kRecords;
    return id;
  };
  const Dataset dataset = partly_bad(kRecords, bad, kRecords).mixup(1).skip_bad_records(4);
  const auto stream = dataset.stream({.seed = 3, .last_step = 1});
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  int replaced = 0;
  for (std::int64_t id = 0; id < kRecords; ++id) {
    const auto i = static_cast<std::size_t>(id);
    const Mixup mixup = choose_mixup({3, 0, id}, kRecords, 1);
    EXPECT_EQ(parts[0].record_ids[i], good(id));
    const bool alone = mixup.partner == id || mixup.weight == 1;
    const auto own = static_cast<float>(good(id));
    const auto partner = alone ? own : static_cast<float>(good(mixup.partner));
    EXPECT_FLOAT_EQ(parts[0].features()[2 * i], mixup.weight * own + (1 - mixup.weight) * partner);
    replaced += !alone && bad.contains(mixup.partner) ? 1 : 0;
  }
  EXPECT_GT(replaced, 0);
  EXPECT_EQ(stream->bad_records().size(), 4u);
}

TEST(BadRecords, AreMarkedAndRemovedForEvaluations) {
  const Dataset dataset = partly_bad(10, {0, 3, 4, 5, 6, 7, 9}).skip_bad_records(7);
  StreamOptions options = epochs(dataset, 1);
  options.marks_bad = true;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].record_ids, ElementsAre(-1, 1, 2, -4));
  EXPECT_THAT(parts[0].remove_bad(), ElementsAre(0, 3));
  EXPECT_EQ(parts[0].samples, 2);
  EXPECT_THAT(parts[0].record_ids, ElementsAre(1, 2));
  EXPECT_THAT(copy(parts[0].features()), ElementsAre(1, 2, 2, 4));
  EXPECT_THAT(parts[0].remove_bad(), ElementsAre());
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].remove_bad(), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(parts[0].samples, 0);
  EXPECT_TRUE(parts[0].features().empty());
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].remove_bad(), ElementsAre(9));
  EXPECT_THAT(copy(parts[0].features()), ElementsAre(8, 16));
  EXPECT_EQ(stream->bad_records().size(), 7u);
}

TEST(BadRecords, BeyondTheLimitAreAnError) {
  const Dataset dataset = partly_bad(10, {2, 5}).skip_bad_records(1);
  EXPECT_EQ(data_error_of([&] { ids_of(dataset, epochs(dataset, 1)); }),
            "[bad records] expected at most 1 unreadable record; there are more, such as: [file: "
            "record 5] expected intact data; its CRC differs");
}

/// Records 3 and 6 are bad; record 3 waits until another thread has reached record 6.
class LateBadSource final : public RecordSource {
 public:
  LateBadSource() { info_ = good_.info(); }
  void read(std::int64_t record_id, Sample& sample) const override {
    if (record_id == 3) reached_6_.wait(false);
    if (record_id == 6) {
      reached_6_ = true;
      reached_6_.notify_all();
    }
    if (record_id == 3 || record_id == 6)
      throw Error(ErrorCategory::data, "file", "expected intact data", "its CRC differs");
    good_.read(record_id, sample);
  }

 private:
  CountingSource good_{8};
  mutable std::atomic<bool> reached_6_ = false;
};

TEST(BadRecords, CountInStepOrder) {
  const Dataset dataset =
      Dataset::from_source(std::make_shared<LateBadSource>()).batch(4).skip_bad_records(1);
  StreamOptions options = epochs(dataset, 1);
  options.threads = 2;
  const auto stream = dataset.stream(options);
  std::vector<Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_THAT(parts[0].record_ids, ElementsAre(0, 1, 2, 4));
  const auto bad = stream->bad_records();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].record_id, 3);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(data_error_of([&] { stream->next(parts); }),
              "[bad records] expected at most 1 unreadable record; there are more, such as: [file] "
              "expected intact data; its CRC differs");
}

TEST(BadRecords, BatchesAreIdenticalForAnyNumberOfReplicas) {
  const Dataset dataset = partly_bad(23, {0, 7, 8, 22}, 5).shuffle().skip_bad_records(4);
  StreamOptions options = epochs(dataset, 2);
  const auto whole = ids_of(dataset, options);
  options.replicas = 3;
  std::vector<std::vector<std::int64_t>> joined(whole.size());
  for (options.first_replica = 0; options.first_replica < 3; ++options.first_replica) {
    const auto own = ids_of(dataset, options);
    for (std::size_t step = 0; step < joined.size(); ++step)
      joined[step].insert(joined[step].end(), own[step].begin(), own[step].end());
  }
  EXPECT_EQ(joined, whole);
}

TEST(BadRecords, CannotBeAll) {
  const Dataset dataset = partly_bad(3, {0, 1, 2}).skip_bad_records(5);
  EXPECT_EQ(data_error_of([&] { ids_of(dataset, epochs(dataset, 1)); }),
            "[partly bad] expected a readable record; all 3 are bad");
}

TEST(BadRecords, CountOnlyDataErrors) {
  const Dataset dataset =
      Dataset::from_source(
          std::make_shared<PartlyBadSource>(3, std::set<std::int64_t>{1}, ErrorCategory::device))
          .batch(3)
          .skip_bad_records(5);
  EXPECT_EQ(error_of(ErrorCategory::device, [&] { ids_of(dataset, epochs(dataset, 1)); }),
            "[file: record 1] expected intact data; its CRC differs");
}

TEST(BadRecords, RejectANegativeLimit) {
  EXPECT_EQ(input_error_of([] { partly_bad(3, {}).skip_bad_records(-1); }),
            "[bad records] expected a limit of 0 or more, got -1");
}

}  // namespace
}  // namespace lockstep::inline v0::data
