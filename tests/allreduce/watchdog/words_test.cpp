#include "lockstep/allreduce/watchdog/verdict.h"

#include <gtest/gtest.h>

namespace lockstep::inline v0::allreduce {
namespace {

TEST(ListOf, ShortensLongRuns) {
  EXPECT_EQ(list_of({}), "");
  EXPECT_EQ(list_of(std::vector{4}), "4");
  EXPECT_EQ(list_of(std::vector{0, 1, 3}), "0,1,3");
  EXPECT_EQ(list_of(std::vector{1, 2, 3}), "1,2,3");
  EXPECT_EQ(list_of(std::vector{0, 1, 2, 3, 4, 5, 6, 8}), "0-6,8");
  EXPECT_EQ(list_of(std::vector{0, 2, 3, 4, 5}), "0,2-5");
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
