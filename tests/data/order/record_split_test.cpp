#include "lockstep/data/order/record_split.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using Counts = std::map<std::int32_t, std::array<std::int64_t, 3>>;

/// The records of each part by group.
Counts counts_of(const std::vector<SplitPart>& parts, const std::vector<std::int32_t>& groups) {
  Counts counts;
  for (std::size_t i = 0; i < parts.size(); ++i)
    ++counts[groups[i]][static_cast<std::size_t>(parts[i])];
  return counts;
}

TEST(RecordSplit, DividesEachClassWithinOneRecord) {
  std::vector<std::int32_t> groups;
  for (std::int32_t group = 0; group < 40; ++group)
    for (int i = 0; i <= group; ++i) groups.push_back(group);  // 1 to 40 records
  for (const auto& [validation, test] : {std::pair(0.2, 0.1), {0.0, 0.5}, {0.45, 0.45}}) {
    const RecordSplit split = {.validation = validation, .test = test, .seed = 5};
    const auto parts = split_records(split, groups);
    double all_validation = 0;
    for (const auto& [group, counts] : counts_of(parts, groups)) {
      const double records = group + 1;
      EXPECT_GE(counts[0], 1) << "a class without training records";
      EXPECT_LE(std::abs(static_cast<double>(counts[1]) - validation * records), 1) << group;
      EXPECT_LE(std::abs(static_cast<double>(counts[2]) - test * records), 1) << group;
      all_validation += static_cast<double>(counts[1]);
    }
    EXPECT_NEAR(all_validation, validation * static_cast<double>(groups.size()), 8)
        << "small classes keep a training record";
  }
}

TEST(RecordSplit, DependsOnSeedAlone) {
  const std::vector<std::int32_t> one_group(1000);
  const RecordSplit split = {.validation = 0.25, .test = 0.1, .seed = 3};
  const auto parts = split_records(split, one_group);
  EXPECT_EQ(parts, split_records(split, one_group));
  EXPECT_EQ(counts_of(parts, one_group)[0], (std::array<std::int64_t, 3>{650, 250, 100}));
  const auto others = split_records({.validation = 0.25, .test = 0.1, .seed = 4}, one_group);
  EXPECT_NE(parts, others);
  std::int64_t moved = 0;  // a record has the same part by chance with 0.65^2 + 0.25^2 + 0.1^2
  for (std::size_t i = 0; i < parts.size(); ++i) moved += parts[i] != others[i] ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(moved), 505, 80);
}

TEST(RecordSplit, KeepsAClassOfOneRecordInTraining) {
  EXPECT_EQ(split_records({.validation = 0.9, .test = 0.05}, std::vector<std::int32_t>{7}),
            std::vector<SplitPart>{SplitPart::training});
}

TEST(RecordSplit, RefusesFractionsWithoutATrainingPart) {
  const std::string prefix =
      "[split] expected --validation-split and --test-split, and their sum, to be fractions below "
      "1, such as 0.2, got ";
  for (const auto& [split, got] : {std::pair(RecordSplit{.validation = 1}, "1 and 0"),
                                   {{.test = 1.5}, "0 and 1.5"},
                                   {{.validation = -0.1}, "-0.1 and 0"},
                                   {{.validation = 0.5, .test = 0.5}, "0.5 and 0.5"}})
    EXPECT_EQ(input_error_of([&] { split.check(); }), prefix + got);
  EXPECT_NO_THROW((RecordSplit{.validation = 0.5, .test = 0.4}.check()));
}

TEST(RecordSplit, RefusesAPartWithoutRecords) {
  const RecordSplit split = {.validation = 0.01};
  EXPECT_EQ(data_error_of([&] {
              count_parts(split, split_records(split, std::vector<std::int32_t>(20)), "", "t.csv");
            }),
            "[t.csv] expected at least one validation record for --validation-split 0.01, got none "
            "of 20");
}

}  // namespace
}  // namespace lockstep::inline v0::data
