#include "lockstep/job/failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {
namespace {

template <typename E>
Failure failure_of(const E& error) {
  try {
    throw error;
  } catch (...) {
    return describe_current_exception();
  }
}

TEST(Failure, HasTheExitStatusOfItsCategory) {
  const auto status = [](ErrorCategory category) {
    return failure_of(Error(category, "w", "n", "g")).exit_status;
  };
  EXPECT_EQ(status(ErrorCategory::input), 2);
  EXPECT_EQ(status(ErrorCategory::data), 3);
  EXPECT_EQ(status(ErrorCategory::checkpoint), 3);
  EXPECT_EQ(status(ErrorCategory::communication), 4);
  EXPECT_EQ(status(ErrorCategory::device), 5);
}

TEST(Failure, KeepsTheMessage) {
  EXPECT_EQ(failure_of(Error(ErrorCategory::input, "where", "expected this", "got that")).message,
            "[where] expected this, got that");
  EXPECT_EQ(failure_of(std::runtime_error("oops")).message, "oops");
}

TEST(Failure, CountsAFailedCollectiveAsAConsequence) {
  EXPECT_TRUE(failure_of(Error(ErrorCategory::communication, "w", "n", "g")).consequence);
  EXPECT_FALSE(failure_of(Error(ErrorCategory::data, "w", "n", "g")).consequence);
}

TEST(Failure, AdvisesOnExhaustedMemory) {
  const Failure failure = failure_of(std::bad_alloc());
  EXPECT_EQ(failure.exit_status, 5);
  EXPECT_NE(failure.message.find("reduce the batch"), std::string::npos);
}

TEST(Failure, NamesTheFile) {
  const Failure failure = failure_of(std::filesystem::filesystem_error(
      "status", "/root/private", std::make_error_code(std::errc::permission_denied)));
  EXPECT_EQ(failure.exit_status, 3);
  EXPECT_EQ(
      failure.message,
      "[/root/private] expected a file or directory that this user can use, got Permission denied");
}

TEST(Failure, IsADeviceErrorForSystemErrors) {
  const Failure failure = failure_of(
      std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "thread"));
  EXPECT_EQ(failure.exit_status, 5);
  EXPECT_NE(failure.message.find("[system] expected "), std::string::npos);
  EXPECT_NE(failure.message.find("got thread: Resource temporarily unavailable"),
            std::string::npos);
}

TEST(Failure, IsPrintable) {
  EXPECT_EQ(failure_of(std::runtime_error("a\x1b[2J\nlockstep: error: b")).message,
            "a\\x1b[2J\\nlockstep: error: b");
  EXPECT_EQ(failure_of(std::filesystem::filesystem_error(
                           "status", "a\nb", std::make_error_code(std::errc::permission_denied)))
                .message,
            "[a\\nb] expected a file or directory that this user can use, got Permission denied");
}

TEST(Failure, HasNoTextOfTheJsonLibrary) {
  try {
    static_cast<void>(nlohmann::json(3).get<std::string>());
  } catch (...) {
    const Failure failure = describe_current_exception();
    EXPECT_EQ(failure.exit_status, 1);
    EXPECT_EQ(failure.message,
              "[json] expected values of other kinds in a JSON text; this is a bug of its reader "
              "(json.exception.302)");
  }
}

TEST(Failure, HasStatusOneForInternalErrors) {
  EXPECT_EQ(failure_of(CheckFailure("check failed")).exit_status, 1);
  EXPECT_EQ(failure_of(42).exit_status, 1);
}

TEST(Session, IsTheChiefOfOneRankInOneProcess) {
  const Session session(0, nullptr);
  EXPECT_TRUE(session.is_chief());
  EXPECT_EQ(session.size(), 1);
  EXPECT_EQ(session.nodes(), 1);
  EXPECT_EQ(session.communicator(), std::nullopt);
  EXPECT_EQ(session.all_gather("mine"), std::vector<std::string>{"mine"});
}

TEST(Session, IsOneAtATime) {
  const auto second = [] {
    try {
      const Session session(0, nullptr);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  {
    const Session first(0, nullptr);
    const std::string refusal =
        "[session] expected one session per process, got a second one before the end of the first";
    EXPECT_EQ(second(), refusal);
    EXPECT_EQ(second(), refusal) << "the rejected one changes nothing";
  }
  EXPECT_EQ(second(), "");
}

TEST(Session, GuardReturnsTheResultOfTheBody) {
  Session session(0, nullptr);
  EXPECT_EQ(session.guard([] { return 143; }), 143);
}

TEST(Session, GuardPrintsOneLineAndReturnsTheStatus) {
  Session session(0, nullptr);
  ::testing::internal::CaptureStderr();
  const int status = session.guard(
      []() -> int { throw Error(ErrorCategory::data, "file", "expected bytes", "got none"); });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: error: [file] expected bytes, got none\n");
  EXPECT_EQ(status, 3);
}

}  // namespace
}  // namespace lockstep::inline v0::job
