#include "allreduce/routes/barrier.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace lockstep::allreduce {
namespace {

void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Barrier, ShowsWhatTheOthersDidBefore) {
  for (const int members : {1, 2, 4, 9}) {
    Barrier barrier(members);
    std::vector<int> written(static_cast<std::size_t>(members), -1);  // plain memory: the barrier alone orders it
    run_threads(members, [&](int member) {
      for (int round = 0; round < 500; ++round) {
        written[static_cast<std::size_t>(member)] = round;
        EXPECT_TRUE(barrier.arrive_and_wait());
        for (const int value : written) ASSERT_EQ(value, round);
        EXPECT_TRUE(barrier.arrive_and_wait());
      }
    });
  }
}

TEST(Barrier, BreaksUpForThoseWhoWaitAndThoseWhoCome) {
  Barrier barrier(3);
  run_threads(3, [&](int member) {
    if (member == 0)
      barrier.break_up();
    else
      EXPECT_FALSE(barrier.arrive_and_wait());
    EXPECT_FALSE(barrier.arrive_and_wait());
  });
}

}  // namespace
}  // namespace lockstep::allreduce
