#include "lockstep/base/error.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::inline v0 {
namespace {

TEST(Error, HasWhereExpectedAndActual) {
  const Error error(ErrorCategory::data, "train.tfrecord", "expected a record", "got 3 bytes");
  EXPECT_STREQ(error.what(), "[train.tfrecord] expected a record, got 3 bytes");
}

TEST(Error, PacksAnyBytes) {
  using namespace std::string_literals;
  const ErrorMessage messages[] = {{"a\nb.csv", "expected a table", "got nothing"},
                                   {"a", "b.csv\nexpected a table", "got nothing"},
                                   {"", "", ""},
                                   {"3:1:x", "12:", ":\xff\0\x1b"s}};
  for (const ErrorMessage& message : messages) {
    const ErrorMessage read = ErrorMessage::unpack(message.pack());
    EXPECT_EQ(read.where, message.where);
    EXPECT_EQ(read.expected, message.expected);
    EXPECT_EQ(read.actual, message.actual);
  }
  EXPECT_NE(messages[0].pack(), messages[1].pack());
}

TEST(Error, LosesOnlyItsEndIfTruncated) {
  const std::string packed = ErrorMessage{"a.csv", "expected a table", "got nothing"}.pack();
  EXPECT_EQ(ErrorMessage::unpack(packed.substr(0, packed.size() - 4)).text(),
            "[a.csv] expected a table, got not");
  EXPECT_EQ(ErrorMessage::unpack(packed.substr(0, 8)).where, "a.c");
  EXPECT_EQ(ErrorMessage::unpack("of another program").expected, "of another program");
  EXPECT_EQ(ErrorMessage::unpack("99999999999999999999:1:").expected, "99999999999999999999:1:");
}

TEST(Error, CategoryDeterminesTheExitStatus) {
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
}  // namespace lockstep::inline v0
