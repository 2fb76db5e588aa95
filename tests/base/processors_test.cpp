#include "lockstep/base/host.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace lockstep {
namespace {

TEST(Processors, AreAllThatMayBeAskedFor) {
  const std::vector<int> allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(available_cores(), static_cast<int>(allowed.size()));
  const std::vector<int> possible = processors_of_cpu_set();
  EXPECT_TRUE(std::ranges::includes(possible, allowed));
}

TEST(Processors, OfABoundThreadCouldBeMore) {
  const std::vector<int> possible = processors_of_cpu_set();
  if (possible.size() < 2) GTEST_SKIP() << "needs two processors";
  std::thread([&] {
    cpu_set_t last;
    CPU_ZERO(&last);
    CPU_SET(possible.back(), &last);
    ASSERT_EQ(sched_setaffinity(0, sizeof(last), &last), 0);
    EXPECT_EQ(processors_of_cpu_set(), possible);
    EXPECT_EQ(allowed_processors(), std::vector<int>{possible.back()}) << "the binding is as it was";
    EXPECT_EQ(processor_list(), std::to_string(possible.back()));
  }).join();
}

}  // namespace
}  // namespace lockstep
