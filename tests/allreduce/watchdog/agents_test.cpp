// Rank 0's part and those of the others over real sockets, in made-up time.
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

#include "lockstep/allreduce/watchdog/coordinator.h"
#include "lockstep/allreduce/watchdog/member.h"
#include "lockstep/base/error.h"
#include "tests/allreduce/watchdog/views.h"

namespace lockstep::allreduce {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr milliseconds kSoon{2000};

/// Lets bytes arrive until `happened`.
void await(const std::function<bool()>& happened) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!happened() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(1));
}

/// Calls receive until it finds something.
std::optional<Finding> await_finding(Agent& post, double now) {
  std::optional<Finding> finding;
  await([&] {
    finding = post.receive(now);
    return finding.has_value();
  });
  return finding;
}

class Posts : public ::testing::Test {
 protected:
  void start(int ranks) {
    center_ = std::make_unique<Coordinator>(ranks, "G", kTimeout, 1.0);
    for (int rank = 1; rank < ranks; ++rank) join(rank);
    for (auto& member : members_) member->beat(0, {inside(8, 3, 0)}, kBuckets);
    await([&] { return !center_->receive(0) && center_->reported() == ranks - 1; });
  }

  /// Rank 0 listens while `action` runs, as its own thread does in a job.
  template <typename Action>
  void while_listening(Action action) {
    std::atomic<bool> done{false};
    std::thread listens([&] {
      while (!done) {
        EXPECT_FALSE(center_->receive(0));
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    action();
    done = true;
    listens.join();
  }

  void join(int rank) {
    while_listening(
        [&] { members_.push_back(std::make_unique<Member>(rank, "K", center_->invitation())); });
  }

  /// Whether rank 0 turns a rank that comes with `invitation` away.
  bool is_refused(int rank, const Invitation& invitation) {
    bool refused = false;
    while_listening([&] {
      try {
        const Member member(rank, invitation.host, invitation);
      } catch (const Error&) {
        refused = true;
      }
    });
    return refused;
  }

  Member& member(int rank) { return *members_[static_cast<std::size_t>(rank - 1)]; }
  void kill(int rank) { members_[static_cast<std::size_t>(rank - 1)].reset(); }

  std::unique_ptr<Coordinator> center_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(Posts, FindNothingInAJobThatRuns) {
  start(3);
  EXPECT_FALSE(center_->beat(1, {inside(8, 3, 0)}, kBuckets));
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_FALSE(member(rank).receive(1));
    EXPECT_FALSE(member(rank).beat(1, {inside(8, 3, 0)}, kBuckets));
  }
}

TEST_F(Posts, SeeAtOnceThatARankIsGone) {
  start(3);
  center_->beat(1, {inside(8, 3, 0)}, kBuckets);
  kill(2);
  const auto finding = await_finding(*center_, 1);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::this_rank);
  EXPECT_THAT(finding->text, StartsWith("[watchdog] expected every rank to stay connected; rank 2, "
                                        "host K, is gone (its connection "));
  EXPECT_THAT(finding->text,
              HasSubstr("at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)"));
}

TEST_F(Posts, TellTheOthersTheVerdict) {
  start(3);
  std::thread spreads([&] { center_->broadcast_failure("[watchdog] why", kSoon); });
  for (int rank = 1; rank < 3; ++rank) {
    const auto finding = await_finding(member(rank), 1);
    EXPECT_TRUE(finding);
    if (!finding) continue;
    EXPECT_EQ(finding->text, "[watchdog] why");
    EXPECT_EQ(finding->reporter, Finding::Reporter::other_rank) << "rank 0 has told people";
    kill(rank);
  }
  spreads.join();
}

TEST_F(Posts, NameARankThatIsNotHeardOf) {
  start(3);
  member(1).beat(110, {inside(8, 3, 110)}, kBuckets);
  // Its beat may still be on the way: nobody is named as long as a beat arrives within the time.
  await([&] { return center_->receive(110), center_->reported() == 2; });
  std::optional<Finding> finding;
  await([&] { return (finding = center_->beat(121, {inside(8, 3, 60)}, kBuckets)).has_value(); });
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->text, HasSubstr("rank 2, host K, has not been heard from for 121 s"));
}

TEST_F(Posts, NameARankThatTheOthersWaitFor) {
  start(3);
  member(1).beat(1, {inside(9, 0, 121, 101)}, kBuckets);
  member(2).beat(1, {outside(8, 3, 122)}, kBuckets);
  std::optional<Finding> finding;
  await([&] {
    center_->receive(1);
    return (finding = center_->beat(1, {inside(9, 0, 120, 101)}, kBuckets)).has_value();
  });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text,
            "[watchdog] expected progress within 120 s; rank 2, host K, step 100, waiting before "
            "bucket 0 (layers fc3) for 122 s in compute; ranks 0,1 are in it");
}

TEST_F(Posts, WarnEverLessOftenOfARankThatComputes) {
  start(1);
  for (int wait = 0; wait < 2; ++wait) {
    std::vector<int> warned;
    for (int second = 1; second < 1000; ++second) {
      const auto finding =
          center_->beat(second, {computing(7, -1, second), inside(8, 3, second)}, kBuckets);
      if (!finding) continue;
      EXPECT_TRUE(finding->is_warning) << finding->text;
      EXPECT_EQ(finding->reporter, Finding::Reporter::this_rank);
      warned.push_back(second);
    }
    EXPECT_THAT(warned, ElementsAre(120, 240, 480, 960)) << wait;
    EXPECT_FALSE(center_->beat(1001, {inside(8, 3, 0), inside(8, 3, 1001)}, kBuckets));
  }
}

TEST_F(Posts, EndAtOnceWhatARankThatHasReachedItsEndLeavesWaiting) {
  start(2);
  member(1).beat(1, {inside(8, 3, 1)}, kBuckets);
  std::optional<Finding> finding;
  await([&] {
    center_->receive(1);
    return (finding = center_->beat(1, {at_the_end(7, 1)}, kBuckets)).has_value();
  });
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->text,
            "[watchdog] expected every rank to make the same calls to its end; rank 0, host G, has "
            "left; rank 1 is at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)");
  EXPECT_FALSE(finding->takes_advice);
  // An error of a rank is reported first.
  center_->announce_error(1);
  EXPECT_FALSE(center_->beat(2, {at_the_end(7, 2)}, kBuckets));
  EXPECT_TRUE(center_->beat(kEndingSeconds + 1, {at_the_end(7, 11)}, kBuckets));
}

TEST_F(Posts, LetARankGoThatSaysGoodbye) {
  start(3);
  while_listening([&] { member(2).say_goodbye(false, kSoon); });
  kill(2);
  // Neither its end nor its silence is a failure.
  std::optional<Finding> finding;
  member(1).beat(500, {inside(8, 3, 0)}, kBuckets);
  for (int i = 0; i < 50 && !finding; ++i) {
    finding = center_->receive(500);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(finding);
  EXPECT_FALSE(center_->beat(501, {inside(8, 3, 0)}, kBuckets));
}

TEST_F(Posts, DoNotReportWhatFollowsFromAnErrorOfOneRank) {
  start(4);
  while_listening([&] { member(3).say_goodbye(true, kSoon); });
  kill(3);
  // The launcher ends the others now: of a rank ...
  kill(2);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(center_->receive(1));
  EXPECT_FALSE(center_->beat(1, {inside(8, 3, 0)}, kBuckets));
  // ... and of rank 0 nobody needs to hear.
  center_.reset();
  const auto finding = await_finding(member(1), 1);
  ASSERT_TRUE(finding) << "it leaves nevertheless";
  EXPECT_EQ(finding->reporter, Finding::Reporter::other_rank);
}

TEST_F(Posts, ReportWhoIsGoneAgainLongAfterAnError) {
  start(4);
  while_listening([&] { member(3).say_goodbye(true, kSoon); });
  kill(2);
  const auto finding = await_finding(*center_, kEndingSeconds + 1);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->text, AllOf(HasSubstr("rank 2, host K, is gone"), Not(HasSubstr("rank 3"))));
}

TEST_F(Posts, NameRankZeroWhenItIsGone) {
  start(3);
  center_->beat(1, {inside(8, 3, 0)}, kBuckets);
  center_.reset();
  const auto finding = await_finding(member(2), 2);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::one_per_host);
  EXPECT_EQ(finding->patience, milliseconds(50)) << "rank 1 speaks first";
  EXPECT_FALSE(finding->job.empty());
  EXPECT_THAT(finding->text, StartsWith("[watchdog] expected every rank to stay connected; rank 0, "
                                        "host G, is gone (its connection "));
  EXPECT_THAT(finding->text,
              HasSubstr("at step 100, in all_reduce of bucket 3 (layers conv4 .. fc1)"));
}

TEST_F(Posts, NameRankZeroWhenItIsNotHeardOf) {
  start(2);
  EXPECT_FALSE(member(1).beat(kTimeout + 1, {inside(8, 3, 0)}, kBuckets)) << "rank 0 judges first";
  const auto finding = member(1).beat(kTimeout + 4, {inside(8, 3, 0)}, kBuckets);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->reporter, Finding::Reporter::one_per_host);
  EXPECT_THAT(finding->text, HasSubstr("rank 0, host G, has not been heard from for 124 s"));
}

TEST_F(Posts, WatchThemselvesAfterTheGoodbyeOfRankZero) {
  start(2);
  std::thread leaves([&] { center_->say_goodbye(false, kSoon); });
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(member(1).receive(1));
    std::this_thread::sleep_for(milliseconds(1));
  }
  leaves.join();
  center_.reset();
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
  member(1).say_goodbye(false, kSoon);
}

TEST_F(Posts, DropStrangers) {
  start(2);
  Invitation wrong = center_->invitation();
  wrong.secret = "guessed, and wrong";
  EXPECT_TRUE(is_refused(1, wrong));
  // A rank that is there already, and one that there is not.
  for (const int rank : {1, 0, 2, -1}) EXPECT_TRUE(is_refused(rank, center_->invitation())) << rank;

  std::string why;
  const net::FileDescriptor browser =
      net::connect_to("127.0.0.1", center_->invitation().endpoints.front().port, kSoon, why);
  ASSERT_TRUE(browser.is_open()) << why;
  net::Connection stranger{
      net::connect_to("127.0.0.1", center_->invitation().endpoints.front().port, kSoon, why),
      kMessageLimits};
  stranger.send({MessageKind::verdict, "all out!"});
  await([&] {
    EXPECT_FALSE(center_->receive(1));
    stranger.receive();
    return !stranger.is_open();
  });
  EXPECT_FALSE(stranger.is_open());
  EXPECT_FALSE(center_->beat(1, {inside(8, 3, 0)}, kBuckets)) << "and the job goes on";
}

TEST_F(Posts, FindRoomAmongThoseWhoSayNothing) {
  center_ = std::make_unique<Coordinator>(2, "G", kTimeout, 1.0);
  std::vector<net::FileDescriptor> idle;
  std::string why;
  for (int i = 0; i < 100; ++i)
    idle.push_back(
        net::connect_to("127.0.0.1", center_->invitation().endpoints.front().port, kSoon, why));
  std::atomic<bool> done{false};
  std::thread listens([&] {
    for (double now = 0; !done; now += 0.002) {
      EXPECT_FALSE(center_->receive(now));
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_NO_THROW(Member(1, "K", center_->invitation()));
  done = true;
  listens.join();
}

TEST_F(Posts, ListenWhereTheyAreToldTo) {
  start(2);
  std::string why;
  EXPECT_FALSE(
      net::connect_to("127.0.0.2", center_->invitation().endpoints.front().port, kSoon, why)
          .is_open());
}

TEST_F(Posts, ForgetWhoSaysNothing) {
  start(2);
  std::string why;
  net::Connection mute{
      net::connect_to("127.0.0.1", center_->invitation().endpoints.front().port, kSoon, why),
      kMessageLimits};
  await([&] {
    EXPECT_FALSE(center_->receive(1));
    EXPECT_FALSE(center_->receive(7));
    mute.receive();
    return !mute.is_open();
  });
  EXPECT_FALSE(mute.is_open());
}

TEST_F(Posts, SayWhatWasTriedWhereRankZeroCannotBeReached) {
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
    const Member unreachable(3, "G", invitation);
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
}  // namespace lockstep::allreduce
