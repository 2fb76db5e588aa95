// Watchdogs with their threads, for one process and for several ranks that are threads of it.
#include "lockstep/allreduce/watchdog/watchdog.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/allreduce/watchdog/connect.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kShort = 0.5;
constexpr double kLong = 3600;

/// A report that a test waits for.
class Reported {
 public:
  std::function<void(const WatchdogReport&)> callback() {
    return [this](const WatchdogReport& report) { promise_.set_value(report); };
  }
  bool is_there() const {
    return report_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  WatchdogReport await() {
    if (report_.wait_for(std::chrono::seconds(30)) != std::future_status::ready)
      return {.text = "no report"};
    return report_.get();
  }

 private:
  std::promise<WatchdogReport> promise_;
  std::future<WatchdogReport> report_ = promise_.get_future();
};

WatchdogOptions options(double timeout, Reported& reported, const std::string& host = "H") {
  return {.stall_timeout = timeout,
          .advice = "start it again",
          .host = host,
          .on_failure = reported.callback()};
}

TEST(WatchdogOfOneProcess, NamesTheReplicaThatTheOthersWaitFor) {
  Reported reported;
  Activity waits;
  Activity sleeps;
  waits.describe_buckets({"fc2", "fc1"});
  for (Activity* replica : {&waits, &sleeps}) {
    replica->set_step(12);
    replica->set_phase(Phase::compute);
  }
  waits.enter("all_reduce", 0);
  const Watchdog watchdog({&waits, &sleeps}, options(kShort, reported));
  const WatchdogReport report = reported.await();
  EXPECT_TRUE(report.prints);
  EXPECT_THAT(report.text,
              StartsWith("[watchdog] expected progress within 0.5 s; replica 1 (rank 0, host H), "
                         "step 12, waiting before bucket 0 (layers fc2) for "));
  EXPECT_THAT(report.text, EndsWith(" s in compute; replica 0 is in it; start it again"));
}

TEST(WatchdogOfOneProcess, WaitsForWorkThatTicks) {
  Reported reported;
  Activity waits;
  Activity works;
  waits.enter("all_gather");
  const Watchdog watchdog({&waits, &works}, options(kShort, reported));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(4 * kShort);
  while (std::chrono::steady_clock::now() < end) {
    works.tick();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(reported.is_there());
  // It is reported once it stops.
  EXPECT_THAT(reported.await().text, HasSubstr("replica 1 (rank 0, host H)"));
}

// The processor time may be that of the replica that waits.
TEST(WatchdogOfOneProcess, DoesNotCountAWaitInACollectiveAsWork) {
  Reported reported;
  Activity waits;
  const Activity sleeps;
  waits.enter("all_gather");
  WatchdogOptions moving = options(kShort, reported);
  moving.made_progress = [] { return true; };
  const Watchdog watchdog({&waits, &sleeps}, std::move(moving));
  EXPECT_THAT(reported.await().text, HasSubstr("replica 1 (rank 0, host H)"));
}

TEST(WatchdogOfOneProcess, IsOffAtZero) {
  Activity replica;
  replica.enter("all_reduce");
  Reported reported;
  const Watchdog watchdog({&replica}, options(0, reported));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(reported.is_there());
}

TEST(WatchdogOfOneProcess, RejectsInvalidTimeouts) {
  const Activity replica;
  for (const double timeout :
       {-3.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    try {
      const Watchdog watchdog({&replica}, WatchdogOptions{.stall_timeout = timeout});
      ADD_FAILURE() << timeout << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::input);
      EXPECT_THAT(
          error.what(),
          StartsWith("[watchdog] expected a stall timeout of 0 (off) or more seconds, got "));
    }
  }
}

TEST(WatchdogOfOneProcess, ExitsWithTheStatusOfACommunicationError) {
  // The thread sanitizer does not follow a fork of a process with threads: the child starts from
  // the beginning.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Activity replica;
        replica.enter("barrier");
        const Watchdog watchdog({&replica},
                                {.stall_timeout = kShort, .advice = "start it again", .host = "H"});
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::ExitedWithCode(4),
      "lockstep: error: \\[watchdog\\] expected progress within 0.5 s; no rank has made progress "
      "for .* s: rank 0 is before the first step, in barrier; no rank is missing, so a connection "
      "between them may be broken; start it again");
}

/// Three ranks as threads: rank r has activity r, and host "host-r".
class WatchdogOfRanks : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  void start(double timeout) {
    auto coordinator = make_coordinator(kRanks, "host-0", timeout, timeout / 10);
    const Invitation invitation = coordinator->invitation();
    launch(0, std::move(coordinator), timeout);
    for (int rank = 1; rank < kRanks; ++rank)
      launch(rank, make_member(rank, fmt::format("host-{}", rank), invitation), timeout);
  }

  void launch(int rank, std::unique_ptr<Agent> agent, double timeout) {
    const auto r = static_cast<std::size_t>(rank);
    WatchdogOptions watched = options(timeout, reported_[r]);
    watched.made_progress = [this, r] { return active_[r].load(); };
    watchdogs_[r] = std::make_unique<Watchdog>(
        std::move(agent), std::vector<const Activity*>{&activities_[r]}, std::move(watched));
  }

  bool anything_reported() const {
    return std::ranges::any_of(reported_,
                               [](const Reported& reported) { return reported.is_there(); });
  }

  std::array<Activity, kRanks> activities_;
  std::array<std::atomic<bool>, kRanks> active_{};  // whether the process of a rank makes progress
  std::array<Reported, kRanks> reported_;
  std::array<std::unique_ptr<Watchdog>, kRanks> watchdogs_;
};

TEST_F(WatchdogOfRanks, ReportAStallOnEveryRankAndPrintItOnRankZero) {
  for (Activity& activity : activities_) {
    activity.describe_buckets({"fc2", "fc1"});
    activity.set_step(3);
  }
  activities_[0].enter("all_reduce", 1);
  activities_[1].enter("all_reduce", 1);
  start(kShort);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const WatchdogReport report = reported_[rank].await();
    EXPECT_THAT(report.text,
                HasSubstr("rank 2, host host-2, step 3, waiting before bucket 1 (layers fc1) for "))
        << rank;
    EXPECT_THAT(report.text, HasSubstr("; ranks 0,1 are in it; the awaited process neither "))
        << rank;
    EXPECT_THAT(report.text, EndsWith(" overrides; start it again")) << rank;
    EXPECT_EQ(report.prints, rank == 0);
  }
}

// The delay is the subject.
TEST_F(WatchdogOfRanks, WarnOfARankThatComputesAndEndWhenItIsBlocked) {
  activities_[0].enter("all_gather");
  activities_[2].enter("all_gather");
  // Waiting ranks may spin; only the rank that has not arrived counts.
  for (std::atomic<bool>& active : active_) active = true;
  ::testing::internal::CaptureStderr();
  start(kShort);
  std::this_thread::sleep_for(std::chrono::duration<double>(5 * kShort));
  EXPECT_FALSE(anything_reported());
  active_[1] = false;
  for (Reported& reported : reported_)
    EXPECT_THAT(reported.await().text,
                HasSubstr("rank 1, host host-1, before the first step, waiting before all_gather "
                          "for "));
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, StartsWith("lockstep: warning: [watchdog] expected progress within 0.5 s; "
                                   "rank 1, host host-1, before the first step, waiting before "
                                   "all_gather for "));
  EXPECT_THAT(warnings, HasSubstr("the job continues, because"));
  EXPECT_LE(std::ranges::count(warnings, '\n'), 3) << "at 1, 2 and 4 timeouts: " << warnings;
}

// In a training the library reports its progress itself.
TEST_F(WatchdogOfRanks, EndATrainingThatComputesWithoutReporting) {
  activities_[0].enter("all_reduce");
  activities_[2].enter("all_reduce");
  activities_[1].set_phase(Phase::compute);
  active_[1] = true;
  start(kShort);
  for (Reported& reported : reported_)
    EXPECT_THAT(reported.await().text, HasSubstr("rank 1, host host-1"));
}

TEST_F(WatchdogOfRanks, LeaveInOrder) {
  start(kLong);
  for (const std::size_t rank : {2U, 0U, 1U}) watchdogs_[rank].reset();
  EXPECT_FALSE(anything_reported());
}

TEST_F(WatchdogOfRanks, LeaveByAnExceptionWithoutAFalseAlarm) {
  start(kLong);
  try {
    const std::unique_ptr<Watchdog> owner = std::move(watchdogs_[1]);
    throw std::runtime_error("a file cannot be read");
  } catch (const std::runtime_error&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(anything_reported());
}

// Like the end of rank 0's process: its sockets close without a goodbye.
TEST(WatchdogWithoutRankZero, OneRankPerHostPrints) {
  auto coordinator = make_coordinator(3, "G", kLong, 0.05);
  std::array<Activity, 2> activities;
  std::array<Reported, 2> reported;
  std::vector<std::unique_ptr<Watchdog>> watchdogs;
  std::atomic<bool> joined{false};
  std::thread rank_zero([&] {
    while (!joined || coordinator->reported() < 2) {
      coordinator->receive(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    coordinator.reset();
  });
  const Invitation invitation = coordinator->invitation();
  for (std::size_t i = 0; i < 2; ++i)
    watchdogs.push_back(std::make_unique<Watchdog>(
        make_member(static_cast<int>(i) + 1, "K", invitation),
        std::vector<const Activity*>{&activities[i]}, options(kLong, reported[i], "K")));
  joined = true;
  rank_zero.join();
  int printers = 0;
  for (Reported& report : reported) {
    const WatchdogReport found = report.await();
    EXPECT_THAT(
        found.text,
        StartsWith("[watchdog] expected every rank to stay connected; rank 0, host G, is gone ("));
    printers += found.prints ? 1 : 0;
  }
  EXPECT_EQ(printers, 1);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
