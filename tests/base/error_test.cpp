#include "lockstep/base/error.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, SaysWhereNeedAndGiven) {
  const Error error(ErrorCategory::data, "train.tfrecord", "expected a record", "got 3 bytes");
  EXPECT_STREQ(error.what(), "[train.tfrecord] expected a record, got 3 bytes");
}

TEST(Error, CategoriesDecideTheExitStatus) {
  EXPECT_EQ(exit_status(ErrorCategory::input), 2);
  EXPECT_EQ(exit_status(ErrorCategory::data), 3);
  EXPECT_EQ(exit_status(ErrorCategory::checkpoint), 3);
  EXPECT_EQ(exit_status(ErrorCategory::communication), 4);
  EXPECT_EQ(exit_status(ErrorCategory::device), 5);
  EXPECT_EQ(exit_status(ErrorCategory::output), 3);
  EXPECT_EQ(exit_status(ErrorCategory::diverged), 6);
}

TEST(Check, PrintsTheExpressionAndBothValues) {
  const int replicas = 3;
  try {
    LOCKSTEP_CHECK_OP(replicas, ==, 4);
    FAIL() << "the check passed";
  } catch (const CheckFailure& failure) {
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("replicas == 4; 3 and 4"));
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("rank 0"));
  }
}

}  // namespace
}  // namespace lockstep
