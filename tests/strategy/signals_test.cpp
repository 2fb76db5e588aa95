#include "strategy/signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::strategy {
namespace {

TEST(Signals, AreNotedWhileWatched) {
  const SignalWatch watch;
  EXPECT_EQ(watch.received(), 0);
  std::raise(SIGTERM);
  EXPECT_EQ(watch.received(), SIGTERM);
}

TEST(Signals, AreForgottenByANewWatch) {
  {
    const SignalWatch watch;
    std::raise(SIGINT);
    EXPECT_EQ(watch.received(), SIGINT);
  }
  EXPECT_EQ(SignalWatch().received(), 0);
}

TEST(Signals, EndTheProcessAgainAfterTheWatch) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  { const SignalWatch watch; }
  EXPECT_EXIT(std::raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(Signals, EndTheProcessAtTheSecondInterrupt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace lockstep::strategy
