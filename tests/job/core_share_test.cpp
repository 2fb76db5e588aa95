#include "lockstep/job/placement/device_share.h"

#include <gtest/gtest.h>

namespace lockstep::inline v0::job {
namespace {

TEST(CoreShare, IsAllCoresOfABoundRank) {
  const std::vector<CoreClaim> claims{{0, "1100"}, {0, "0011"}};
  EXPECT_EQ(share_of_cores(claims, 0), 2);
  EXPECT_EQ(share_of_cores(claims, 1), 2);
}

TEST(CoreShare, DividesSharedCores) {
  const std::vector<CoreClaim> claims{{0, "1111"}, {0, "1111"}, {1, "1111"}};
  EXPECT_EQ(share_of_cores(claims, 0), 2);
  EXPECT_EQ(share_of_cores(claims, 2), 4);
}

TEST(CoreShare, IsLimitedByTheCpuQuota) {
  EXPECT_EQ(share_of_cores({{0, "11111111", 2.5}}, 0), 2);
  EXPECT_EQ(share_of_cores({{0, "11111111", 100}}, 0), 8);
  const std::vector<CoreClaim> claims{{0, "11110000", 4}, {0, "00001111", 4}, {1, "11110000", 4}};
  EXPECT_EQ(share_of_cores(claims, 0), 2) << "shared by both ranks of the node";
  EXPECT_EQ(share_of_cores(claims, 2), 4);
  EXPECT_EQ(share_of_cores({{0, "11", 0.5}}, 0), 1);
}

TEST(CoreShare, IsAtLeastOne) { EXPECT_EQ(share_of_cores({{0, "1"}, {0, "1"}, {0, "1"}}, 1), 1); }

}  // namespace
}  // namespace lockstep::inline v0::job
