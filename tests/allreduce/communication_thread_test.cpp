#include "lockstep/allreduce/communication_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::inline v0::allreduce {
namespace {

TEST(CommunicationThread, RunsOperationsInOrder) {
  std::vector<int> order;  // plain memory: wait() alone orders it
  CommunicationThread thread;
  for (int round = 0; round < 50; ++round) {
    order.clear();
    for (int i = 0; i < 20; ++i) thread.submit([&order, i] { order.push_back(i); });
    thread.wait();
    ASSERT_EQ(order.size(), 20U);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(CommunicationThread, RunsConcurrentlyWithTheCaller) {
  std::atomic<bool> may_end = false;
  std::thread::id where;
  CommunicationThread thread;
  thread.submit([&] {
    where = std::this_thread::get_id();
    may_end.wait(false);
  });
  may_end = true;  // not reached if submit() waited for the operation
  may_end.notify_all();
  thread.wait();
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(CommunicationThread, RethrowsAnErrorFromWaitAndStops) {
  CommunicationThread thread;
  bool ran = false;
  thread.submit([] { throw std::runtime_error("the connection broke"); });
  thread.submit([&] { ran = true; });
  for (int time = 0; time < 2; ++time) {
    try {
      thread.wait();
      FAIL() << "the error was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the connection broke");
    }
    thread.submit([&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(CommunicationThread, FinishesOperationsBeforeDestruction) {
  int done = 0;
  {
    CommunicationThread thread;
    for (int i = 0; i < 10; ++i) thread.submit([&] { ++done; });
  }
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
