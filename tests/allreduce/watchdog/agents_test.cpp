// The coordinator and the members over real sockets, with simulated time.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/allreduce/watchdog/connect.h"
#include "lockstep/base/error.h"
#include "tests/allreduce/watchdog/views.h"

namespace lockstep::inline v0::allreduce {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr milliseconds kSoon{2000};

/// Waits until `happened`, with a limit.
void await(const std::function<bool()>& happened) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!happened() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(1));
}

/// Calls receive until it returns a finding.
std::optional<Finding> await_finding(Agent& agent, double now) {
  std::optional<Finding> finding;
  await([&] {
    finding = agent.receive(now);
    return finding.has_value();
  });
  return finding;
}

class Agents : public ::testing::Test {
 protected:
  void start(int ranks) {
    coordinator_ = make_coordinator(ranks, "G", kTimeout, 1.0);
    for (int rank = 1; rank < ranks; ++rank) join(rank);
    for (auto& member : members_) member->beat(0, {inside(8, 3, 0)}, kBuckets);
    await([&] { return !coordinator_->receive(0) && coordinator_->reported() == ranks - 1; });
  }

  /// Rank 0 listens while `action` runs, as its own thread does in a job.
  template <typename Action>
  void while_listening(Action action) {
    std::atomic<bool> done{false};
    std::thread listens([&] {
      while (!done) {
        EXPECT_FALSE(coordinator_->receive(0));
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    action();
    done = true;
    listens.join();
  }

  void join(int rank) {
    while_listening(
        [&] { members_.push_back(make_member(rank, "K", coordinator_->invitation())); });
  }

  /// Whether rank 0 rejects a rank that connects with `invitation`.
  bool is_refused(int rank, const Invitation& invitation) {
    bool refused = false;
    while_listening([&] {
      try {
        make_member(rank, invitation.host, invitation);
      } catch (const Error&) {
        refused = true;
      }
    });
    return refused;
  }

  Member& member(int rank) { return *members_[static_cast<std::size_t>(rank - 1)]; }
  void kill(int rank) { members_[static_cast<std::size_t>(rank - 1)].reset(); }

  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(Agents, FindNothingInARunningJob) {
  start(3);
  EXPECT_FALSE(coordinator_->beat(1, {inside(8, 3, 0)}, kBuckets));
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_FALSE(member(rank).receive(1));
    EXPECT_FALSE(member(rank).beat(1, {inside(8, 3, 0)}, kBuckets));
  }
}

TEST_F(Agents, DetectALostRankAtOnce) {
  start(3);
  coordinator_->beat(1, {inside(8, 3, 0)}, kBuckets);
  kill(2);
  const auto finding = await_finding(*coordinator_, 1);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::this_rank);
  EXPECT_THAT(finding->text, StartsWith("[watchdog] expected every rank to stay connected; rank 2, "
                                        "host K, is gone (its connection "));
  EXPECT_THAT(finding->text,
              HasSubstr("at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)"));
}

TEST_F(Agents, BroadcastTheVerdict) {
  start(3);
  std::thread broadcasts([&] { coordinator_->broadcast_failure("[watchdog] why", kSoon); });
  for (int rank = 1; rank < 3; ++rank) {
    const auto finding = await_finding(member(rank), 1);
    EXPECT_TRUE(finding);
    if (!finding) continue;
    EXPECT_EQ(finding->text, "[watchdog] why");
    EXPECT_EQ(finding->reporter, Finding::Reporter::other_rank) << "rank 0 has printed it";
    kill(rank);
  }
  broadcasts.join();
}

TEST_F(Agents, NameASilentRank) {
  start(3);
  member(1).beat(110, {inside(8, 3, 110)}, kBuckets);
  // The beat may still be in flight.
  await([&] { return coordinator_->receive(110), coordinator_->reported() == 2; });
  std::optional<Finding> finding;
  await([&] {
    return (finding = coordinator_->beat(121, {inside(8, 3, 60)}, kBuckets)).has_value();
  });
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->text, HasSubstr("rank 2, host K, has not been heard from for 121 s"));
}

TEST_F(Agents, NameARankThatTheOthersWaitFor) {
  start(3);
  member(1).beat(1, {inside(9, 0, 121, 101)}, kBuckets);
  member(2).beat(1, {outside(8, 3, 122)}, kBuckets);
  std::optional<Finding> finding;
  await([&] {
    coordinator_->receive(1);
    return (finding = coordinator_->beat(1, {inside(9, 0, 120, 101)}, kBuckets)).has_value();
  });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text,
            "[watchdog] expected progress within 120 s; rank 2, host K, step 100, waiting before "
            "bucket 0 (layers fc3) for 122 s in compute; ranks 0,1 are in it");
}

TEST_F(Agents, WarnWithIncreasingIntervalsOfAComputingRank) {
  start(1);
  for (int wait = 0; wait < 2; ++wait) {
    std::vector<int> warned;
    for (int second = 1; second < 1000; ++second) {
      const auto finding =
          coordinator_->beat(second, {computing(7, -1, second), inside(8, 3, second)}, kBuckets);
      if (!finding) continue;
      EXPECT_TRUE(finding->is_warning) << finding->text;
      EXPECT_EQ(finding->reporter, Finding::Reporter::this_rank);
      warned.push_back(second);
    }
    EXPECT_THAT(warned, ElementsAre(120, 240, 480, 960)) << wait;
    EXPECT_FALSE(coordinator_->beat(1001, {inside(8, 3, 0), inside(8, 3, 1001)}, kBuckets));
  }
}

TEST_F(Agents, EndCollectivesThatLackADepartedRank) {
  start(2);
  member(1).beat(1, {inside(8, 3, 1)}, kBuckets);
  std::optional<Finding> finding;
  await([&] {
    coordinator_->receive(1);
    return (finding = coordinator_->beat(1, {at_the_end(7, 1)}, kBuckets)).has_value();
  });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text,
            "[watchdog] expected every rank to make the same calls to its end; rank 0, host G, has "
            "left; rank 1 is at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)");
  EXPECT_FALSE(finding->takes_advice);
  // An error of a rank is reported first.
  coordinator_->announce_error(1);
  EXPECT_FALSE(coordinator_->beat(2, {at_the_end(7, 2)}, kBuckets));
  EXPECT_TRUE(coordinator_->beat(kEndingSeconds + 1, {at_the_end(7, 11)}, kBuckets));
}

TEST_F(Agents, AcceptAGoodbye) {
  start(3);
  while_listening([&] { member(2).send_goodbye(false, kSoon); });
  kill(2);
  // Neither its end nor its silence is a failure.
  std::optional<Finding> finding;
  member(1).beat(500, {inside(8, 3, 0)}, kBuckets);
  for (int i = 0; i < 50 && !finding; ++i) {
    finding = coordinator_->receive(500);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(finding);
  EXPECT_FALSE(coordinator_->beat(501, {inside(8, 3, 0)}, kBuckets));
}

TEST_F(Agents, DoNotReportConsequencesOfAnError) {
  start(4);
  while_listening([&] { member(3).send_goodbye(true, kSoon); });
  kill(3);
  // The launcher now ends the others. The loss of a rank ...
  kill(2);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(coordinator_->receive(1));
  EXPECT_FALSE(coordinator_->beat(1, {inside(8, 3, 0)}, kBuckets));
  // ... and of rank 0 need not be reported.
  coordinator_.reset();
  const auto finding = await_finding(member(1), 1);
  ASSERT_TRUE(finding) << "it exits nevertheless";
  EXPECT_EQ(finding->reporter, Finding::Reporter::other_rank);
}

TEST_F(Agents, ReportLostRanksLongAfterAnError) {
  start(4);
  while_listening([&] { member(3).send_goodbye(true, kSoon); });
  kill(2);
  const auto finding = await_finding(*coordinator_, kEndingSeconds + 1);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->text, AllOf(HasSubstr("rank 2, host K, is gone"), Not(HasSubstr("rank 3"))));
}

TEST_F(Agents, NameRankZeroWhenItIsLost) {
  start(3);
  coordinator_->beat(1, {inside(8, 3, 0)}, kBuckets);
  coordinator_.reset();
  const auto finding = await_finding(member(2), 2);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::one_per_host);
  EXPECT_EQ(finding->patience, milliseconds(50)) << "rank 1 prints first";
  EXPECT_FALSE(finding->job.empty());
  EXPECT_THAT(finding->text, StartsWith("[watchdog] expected every rank to stay connected; rank 0, "
                                        "host G, is gone (its connection "));
  EXPECT_THAT(finding->text,
              HasSubstr("at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)"));
}

TEST_F(Agents, NameRankZeroWhenItIsSilent) {
  start(2);
  EXPECT_FALSE(member(1).beat(kTimeout + 1, {inside(8, 3, 0)}, kBuckets)) << "rank 0 judges first";
  const auto finding = member(1).beat(kTimeout + 4, {inside(8, 3, 0)}, kBuckets);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::one_per_host);
  EXPECT_THAT(finding->text, HasSubstr("rank 0, host G, has not been heard from for 124 s"));
}

TEST_F(Agents, WatchThemselvesAfterTheGoodbyeOfRankZero) {
  start(2);
  std::thread leaves([&] { coordinator_->send_goodbye(false, kSoon); });
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(member(1).receive(1));
    std::this_thread::sleep_for(milliseconds(1));
  }
  leaves.join();
  coordinator_.reset();
  EXPECT_FALSE(member(1).receive(2));
  EXPECT_FALSE(member(1).beat(5000, {outside(8, 3, 5000, Phase::idle)}, kBuckets));
  EXPECT_FALSE(member(1).beat(5100, {inside(9, 0, 100)}, kBuckets))
      << "it may be at the end of its last collective";
  const auto finding = member(1).beat(5121, {inside(9, 0, 121)}, kBuckets);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::one_per_host);
  EXPECT_EQ(
      finding->text,
      "[watchdog] expected progress within 120 s; rank 0, host G, has left; no other rank has made "
      "progress for 121 s: rank 1 is at step 100, in all_reduce of bucket 0 (layers fc3)");
  member(1).send_goodbye(false, kSoon);
}

TEST_F(Agents, RejectUnknownConnections) {
  start(2);
  Invitation wrong = coordinator_->invitation();
  wrong.secret = "guessed, and wrong";
  EXPECT_TRUE(is_refused(1, wrong));
  // A rank that is already connected, and numbers that are no rank.
  for (const int rank : {1, 0, 2, -1})
    EXPECT_TRUE(is_refused(rank, coordinator_->invitation())) << rank;

  std::string why;
  const net::FileDescriptor browser =
      net::connect_to("127.0.0.1", coordinator_->invitation().endpoints.front().port, kSoon, why);
  ASSERT_TRUE(browser.is_open()) << why;
  net::Connection stranger{
      net::connect_to("127.0.0.1", coordinator_->invitation().endpoints.front().port, kSoon, why),
      kMessageLimits};
  stranger.send({MessageKind::verdict, "everyone exit"});
  await([&] {
    EXPECT_FALSE(coordinator_->receive(1));
    stranger.receive();
    return !stranger.is_open();
  });
  EXPECT_FALSE(stranger.is_open());
  EXPECT_FALSE(coordinator_->beat(1, {inside(8, 3, 0)}, kBuckets)) << "the job continues";
}

TEST_F(Agents, AcceptAMemberAmongSilentConnections) {
  coordinator_ = make_coordinator(2, "G", kTimeout, 1.0);
  std::vector<net::FileDescriptor> idle;
  std::string why;
  for (int i = 0; i < 100; ++i)
    idle.push_back(net::connect_to("127.0.0.1", coordinator_->invitation().endpoints.front().port,
                                   kSoon, why));
  std::atomic<bool> done{false};
  std::thread listens([&] {
    for (double now = 0; !done; now += 0.002) {
      EXPECT_FALSE(coordinator_->receive(now));
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_NO_THROW(make_member(1, "K", coordinator_->invitation()));
  done = true;
  listens.join();
}

TEST_F(Agents, ListenOnlyOnTheConfiguredAddress) {
  start(2);
  std::string why;
  EXPECT_FALSE(
      net::connect_to("127.0.0.2", coordinator_->invitation().endpoints.front().port, kSoon, why)
          .is_open());
}

TEST_F(Agents, CloseSilentConnections) {
  start(2);
  std::string why;
  net::Connection mute{
      net::connect_to("127.0.0.1", coordinator_->invitation().endpoints.front().port, kSoon, why),
      kMessageLimits};
  await([&] {
    EXPECT_FALSE(coordinator_->receive(1));
    EXPECT_FALSE(coordinator_->receive(7));
    mute.receive();
    return !mute.is_open();
  });
  EXPECT_FALSE(mute.is_open());
}

TEST_F(Agents, ListAttemptsIfRankZeroIsUnreachable) {
  std::uint16_t closed = 0;
  {
    const net::Listener listener;
    closed = listener.port();
  }
  const Invitation invitation{.secret = "a secret of this job",
                              .host = "G",
                              .endpoints = {{"127.0.0.1", closed}, {"::1", closed}}};
  std::string message;
  try {
    make_member(3, "G", invitation);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::communication);
    message = error.what();
  }
  EXPECT_THAT(message, StartsWith(fmt::format(
                           "[watchdog] expected a TCP connection from rank 3 (host G) to rank 0 "
                           "(host G); tried 127.0.0.1 port {} (Connection refused), ::1 port {} (",
                           closed, closed)));
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
