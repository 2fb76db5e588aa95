#include "lockstep/job/signal/signals.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <vector>

namespace lockstep::inline v0::job {
namespace {

const std::vector<int> kAll = {SIGTERM, SIGINT, SIGHUP};

TEST(Signals, AreRecordedWhileWatched) {
  for (const int signal : kAll) {
    const SignalWatch watch(kAll);
    EXPECT_EQ(watch.received(), 0);
    std::raise(signal);
    EXPECT_EQ(watch.received(), signal);
  }
}

TEST(Signals, AreClearedByANewWatch) {
  {
    const SignalWatch watch(kAll);
    std::raise(SIGINT);
    EXPECT_EQ(watch.received(), SIGINT);
  }
  EXPECT_EQ(SignalWatch(kAll).received(), 0);
}

TEST(Signals, EndTheProcessAgainAfterTheWatch) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  { const SignalWatch watch(kAll); }
  EXPECT_EXIT(std::raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(Signals, EndTheProcessAtTheSecondInterrupt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalWatch watch(kAll);
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(Signals, FirstInterruptPrintsANotice) {
  ::testing::internal::CaptureStderr();
  {
    const SignalWatch watch(kAll, "press it again");
    std::raise(SIGTERM);
    std::raise(SIGINT);
  }
  {
    const SignalWatch silent(kAll);
    std::raise(SIGINT);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "press it again\n");
}

// A rank receives one request twice if the scheduler and mpirun both send it.
TEST(Signals, MayArriveTwice) {
  const SignalWatch watch(kAll);
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGHUP}) std::raise(signal);
  EXPECT_EQ(watch.received(), SIGHUP);
}

TEST(Signals, KeepTheirActionUnlessWatched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalWatch watch({SIGTERM, SIGINT});
        std::raise(SIGALRM);  // not handled by any library
      },
      ::testing::KilledBySignal(SIGALRM), "");
}

TEST(Signals, RunOnASeparateStack) {
  static std::uintptr_t place = 0;
  const auto distance = [] {
    std::raise(SIGUSR1);
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    return place > here ? place - here : here - place;
  };
  // The address sanitizer already provides an alternate stack for its threads.
  const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  stack_t sanitizer_stack = {};
  ASSERT_EQ(sigaltstack(&none, &sanitizer_stack), 0);
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) {
    place = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, &before);
  EXPECT_LT(distance(), 1U << 20);
  {
    const SignalWatch watch(kAll);
    EXPECT_GT(distance(), 1U << 20);
  }
  EXPECT_LT(distance(), 1U << 20);
  sigaction(SIGUSR1, &before, nullptr);
  sigaltstack(&sanitizer_stack, nullptr);
}

TEST(Signals, HangupStaysIgnoredUnderNohup) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const SignalWatch watch(kAll);
    std::raise(SIGHUP);
    EXPECT_EQ(watch.received(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

}  // namespace
}  // namespace lockstep::inline v0::job
