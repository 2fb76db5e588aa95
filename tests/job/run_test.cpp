#include "lockstep/job/run.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/trace/recording.h"
#include "lockstep/job/signal/signal_recording.h"

namespace lockstep::inline v0::job {
namespace {

int run_alone(const std::function<int(Session&)>& body) {
  return run(0, nullptr, SessionOptions{.quiet = true}, body);
}

TEST(Run, ReturnsTheStatusOfItsBody) {
  EXPECT_EQ(run_alone([](Session& session) { return session.size() == 1 ? 143 : 0; }), 143);
  bool is_called = false;
  EXPECT_EQ(run(0, nullptr, [&](Session&) { is_called = true; }), 0);
  EXPECT_TRUE(is_called);
}

TEST(Run, PrintsAnExceptionAndReturnsItsStatus) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_alone([](Session&) -> int { throw std::runtime_error("bad image 17.jpg"); }), 1);
  EXPECT_EQ(run_alone([](Session&) -> int {
              throw Error(ErrorCategory::data, "file", "expected bytes", "got none");
            }),
            3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: error: bad image 17.jpg\n"
            "lockstep: error: [file] expected bytes, got none\n");
}

TEST(Run, PrintsASessionErrorAndReturnsItsStatus) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("RANK", "0", 1);
        ::setenv("WORLD_SIZE", "2", 1);
        std::exit(run(0, nullptr, [](Session&) {}));
      },
      ::testing::ExitedWithCode(2),
      "^lockstep: error: \\[start\\] expected the host and port of rank 0 in MASTER_ADDR and "
      "MASTER_PORT, got \"\" and 0 from RANK and WORLD_SIZE\n$");
}

TEST(Run, RequiresMpiForACommunicator) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(0, nullptr, SessionOptions{.communicator = 0}, [](Session&) {}), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: error: [session] expected MPI_Init before a session with a communicator; "
            "MPI is not initialized\n");
}

TEST(SignalRecording, ServesARequestFromBeforeTheSession) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        hold_recording_requests();
        std::raise(SIGUSR1);
        const Session session(0, nullptr);
        { const SignalRecording records(session); }
        std::raise(SIGUSR1);  // ignored, because the recording has ended
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "the last events are in .*recorder-0.jsonl");
}

TEST(SignalRecording, KeepsAHandlerOfTheProgram) {
  const auto before = std::signal(SIGUSR1, [](int) {});
  const auto mine = std::signal(SIGUSR1, before);
  std::signal(SIGUSR1, mine);
  hold_recording_requests();
  EXPECT_EQ(std::signal(SIGUSR1, before), mine);
}

}  // namespace
}  // namespace lockstep::inline v0::job
