#include "lockstep/strategy/callbacks/progress.h"

#include <gtest/gtest.h>

namespace lockstep::strategy {
namespace {

TEST(BytesText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.00 kB");
  EXPECT_EQ(bytes_text(12'345), "12.3 kB");
  EXPECT_EQ(bytes_text(999'499), "999 kB");
  EXPECT_EQ(bytes_text(999'999), "1.00 MB");
  EXPECT_EQ(bytes_text(140'000'000'000), "140 GB");
}

TEST(ShardTable, IsOneLineForOneRank) {
  EXPECT_EQ(shard_table("auto", 1, 1003, 800'000, {{1, 1003, 800'000}}),
            "shard policy auto: 1003 records of 1 file, 800 kB\n");
  EXPECT_EQ(shard_table("auto", 0, 1003, 0, {{0, 1003, 0}}), "shard policy auto: 1003 records\n");
}

TEST(ShardTable, HasALineForEachRank) {
  EXPECT_EQ(shard_table("file", 7, 30, 3000, {{4, 10, 1000}, {3, 20, 2000}}),
            "shard policy file: 30 records of 7 files, 3.00 kB\n"
            "   rank   files       records      bytes\n"
            "      0       4            10    1.00 kB\n"
            "      1       3            20    2.00 kB\n");
}

TEST(ShardTable, HasTheExtremesOfManyRanks) {
  std::vector<data::WorkerShare> shares(17, {2, 10, 1000});
  shares[3] = {1, 11, 900};
  EXPECT_EQ(shard_table("auto", 2, 171, 16'900, shares),
            "shard policy auto: 171 records of 2 files, 16.9 kB\n"
            "   rank   files       records      bytes\n"
            "  least       1            10      900 B\n"
            "   most       2            11    1.00 kB\n");
}

}  // namespace
}  // namespace lockstep::strategy
