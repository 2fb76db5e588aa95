#include "strategy/core_share.h"

#include <gtest/gtest.h>

namespace lockstep::strategy {
namespace {

TEST(CoreShare, GivesBoundRanksTheirOwnCores) {
  const std::vector<CoreClaim> claims{{0, "1100"}, {0, "0011"}};
  EXPECT_EQ(share_of_cores(claims, 0), 2);
  EXPECT_EQ(share_of_cores(claims, 1), 2);
}

TEST(CoreShare, DividesWhatRanksOfANodeWereGivenAlike) {
  const std::vector<CoreClaim> claims{{0, "1111"}, {0, "1111"}, {1, "1111"}};
  EXPECT_EQ(share_of_cores(claims, 0), 2);
  EXPECT_EQ(share_of_cores(claims, 2), 4);
}

TEST(CoreShare, IsAtLeastOne) { EXPECT_EQ(share_of_cores({{0, "1"}, {0, "1"}, {0, "1"}}, 1), 1); }

}  // namespace
}  // namespace lockstep::strategy
