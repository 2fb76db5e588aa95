#include "apps/lockstep/launch/child.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"
#include "tests/apps/program.h"

namespace lockstep::inline v0::apps::launch {
namespace {

/// Waits for the first rank, and returns the ranks.
std::vector<pid_t> ranks_of(const Child& child) {
  for (int look = 0; look < 200 && child.ranks().empty(); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return child.ranks();
}

TEST(Child, EndsRanksInOtherProcessGroups) {
  auto daemon = std::make_unique<Child>(
      std::vector<std::string>{"sh", "-c", "OMPI_COMM_WORLD_RANK=0 setsid sleep 1000 & wait"},
      ChildOptions{});
  const std::vector<pid_t> ranks = ranks_of(*daemon);
  ASSERT_EQ(ranks.size(), 1U);
  const Watched rank(ranks.front());
  daemon.reset();
  EXPECT_TRUE(rank.ends_within(5));
}

TEST(Child, RequiresExistingProgram) {
  try {
    Child child({"no-such-program"}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(error.what(),
                 "[launch] expected no-such-program in PATH; No such file or directory");
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps::launch
