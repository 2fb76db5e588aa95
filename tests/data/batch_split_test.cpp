#include "lockstep/data/order/batch_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

TEST(BatchSplit, CoversEverySampleOnceAndEvenly) {
  for (std::int64_t parts = 1; parts <= 9; ++parts) {
    for (std::int64_t total = 0; total <= 40; ++total) {
      std::int64_t next = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range range = split(total, parts, part);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), total / parts);
        EXPECT_LE(range.size(), (total + parts - 1) / parts);
        next = range.end;
      }
      EXPECT_EQ(next, total) << total << " in " << parts;
    }
  }
}

TEST(BatchSplit, CutsWhereTheDocumentationSays) {
  EXPECT_EQ(split(10, 3, 0), (Range{0, 3}));
  EXPECT_EQ(split(10, 3, 1), (Range{3, 6}));
  EXPECT_EQ(split(10, 3, 2), (Range{6, 10}));
  EXPECT_EQ(split(2, 3, 0).size(), 0);
}

TEST(BatchSplit, DoesNotOverflow) {
  const std::int64_t total = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(split(total, 1000, 999).end, total);
  EXPECT_EQ(split(total, 1000, 500).begin, split(total, 1000, 499).end);
}

TEST(BatchSplit, ChecksItsArguments) {
  EXPECT_THROW(split(-1, 1, 0), CheckFailure);
  EXPECT_THROW(split(1, 0, 0), CheckFailure);
  EXPECT_THROW(split(1, 2, 2), CheckFailure);
  EXPECT_THROW(split(1, 2, -1), CheckFailure);
}

TEST(BatchSplit, InTurnGivesEveryPartAsMuch) {
  for (const std::int64_t parts : {1, 2, 3, 7, 16}) {
    for (std::int64_t total = 0; total <= 40; ++total) {
      std::vector<std::int64_t> had(static_cast<std::size_t>(parts));
      for (std::int64_t turn = 0; turn < 50; ++turn) {
        std::int64_t end = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
          const Range range = split_in_turn(total, parts, part, turn);
          EXPECT_EQ(range.begin, end);
          end = range.end;
          had[static_cast<std::size_t>(part)] += range.size();
        }
        EXPECT_EQ(end, total);
        const auto [least, most] = std::minmax_element(had.begin(), had.end());
        EXPECT_LE(*most - *least, 1) << total << " in " << parts << ", turn " << turn;
      }
      for (std::int64_t part = 0; part < parts; ++part)
        EXPECT_EQ(split_in_turn(total, parts, part, 0), split(total, parts, part));
    }
  }
}

}  // namespace
}  // namespace lockstep::data
