#include "lockstep/strategy/replica_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::ElementsAre;

TEST(ReplicaThreads, RunsEachReplicaOnItsThread) {
  ReplicaThreads threads(4, 1);
  std::vector<std::thread::id> first(4);
  std::vector<std::thread::id> second(4);
  threads.run(
      [&](int replica) { first[static_cast<std::size_t>(replica)] = std::this_thread::get_id(); });
  threads.run(
      [&](int replica) { second[static_cast<std::size_t>(replica)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 4U);
}

TEST(ReplicaThreads, RunsReplicaZeroOnTheCallingThread) {
  ReplicaThreads threads(1, 1);
  std::thread::id id;
  threads.run([&](int) { id = std::this_thread::get_id(); });
  EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ReplicaThreads, ReturnsWhenAllAreDone) {
  ReplicaThreads threads(3, 1);
  for (int round = 1; round <= 1000; ++round) {
    std::atomic<int> sum = 0;
    threads.run([&](int replica) { sum += (replica + 1) * round; });
    ASSERT_EQ(sum, 6 * round);
  }
}

TEST(ReplicaThreads, ThrowsTheErrorOfAReplica) {
  ReplicaThreads threads(3, 1);
  const auto fail_on_two = [](int replica) {
    if (replica == 2) throw std::runtime_error("replica 2 has had enough");
  };
  EXPECT_THROW(threads.run(fail_on_two), std::runtime_error);
  std::atomic<int> replicas = 0;
  threads.run([&](int /*replica*/) { ++replicas; });
  EXPECT_EQ(replicas, 3);
}

TEST(ReplicaThreads, ReportsTheFirstErrorBeforeOthersEnd) {
  std::atomic<bool> reported = false;
  std::vector<std::string> reasons;
  ReplicaThreads threads(2, 1, [&](int replica, const std::string& reason) {
    reasons.push_back(std::to_string(replica) + ": " + reason);
    reported = true;
    reported.notify_all();
  });
  const auto body = [&](int replica) {
    if (replica == 1) throw std::runtime_error("the cause");
    reported.wait(false);  // like a collective that replica 1 never enters
    throw std::runtime_error("the consequence");
  };
  try {
    threads.run(body);
    FAIL() << "should have thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the cause");
  }
  EXPECT_THAT(reasons, ElementsAre("1: the cause"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
