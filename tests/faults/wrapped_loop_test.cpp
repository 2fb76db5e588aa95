// How a user's own loops end, around a DistributedOptimizer: soon, with the right status, and
// leaving nothing.
#include <fmt/format.h>
#include <csignal>

#include "tests/faults/endings.h"

namespace lockstep::faults {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kLoopSeconds = 10;  // that the end may take

std::string wrapped(const Route& route, const std::string& words) {
  return fmt::format("--wrapped --allreduce {} {}", route.name, words);
}

std::vector<Outcome> outcomes_of(const std::string& words, int more_ranks = 0) {
  Jobs jobs;
  for (const Route& route : kRoutes) jobs.start(route.ranks + more_ranks, wrapped(route, words));
  return jobs.finish();
}

TEST(TheEndOfAWrappedLoop, IsQuietWhenItIsDone) {
  for (const Outcome& outcome : outcomes_of("", 1)) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kLoopSeconds);
    EXPECT_EQ(outcome.left_behind, "");
    EXPECT_THAT(outcome.output, HasSubstr("trained 20 steps"));
  }
}

TEST(TheEndOfAWrappedLoop, ByAnExceptionOnOneRankIsOneLine) {
  for (const auto& [fault, message] : {std::pair("throws", "a shard cannot be read"),
                                       std::pair("throws-in-backward", "a layer cannot go on")})
    for (const Outcome& outcome : outcomes_of(fmt::format("--fault {}", fault))) {
      EXPECT_EQ(outcome.status, 1) << outcome.output;
      EXPECT_LT(outcome.seconds, kLoopSeconds);
      EXPECT_EQ(outcome.left_behind, "");
      EXPECT_EQ(error_lines(outcome),
                std::vector<std::string>{std::string("lockstep: error: ") + message});
    }
}

TEST(TheEndOfAWrappedLoop, ByAnExceptionThatNobodyCatchesEndsAllRanks) {
  for (const Outcome& outcome : outcomes_of("--unguarded --fault throws")) {
    EXPECT_GT(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kLoopSeconds);
    EXPECT_EQ(outcome.left_behind, "");
    EXPECT_THAT(outcome.output, HasSubstr("a shard cannot be read"));
  }
}

// The loop does with signals what it will; this one dies of them. Whether the launcher sees that
// first or the watchdog of the others is open.
TEST(TheEndOfAWrappedLoop, ByASignalEndsAllRanks) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Jobs jobs;
    std::vector<Job*> running;
    for (const Route& route : kRoutes)
      running.push_back(&jobs.start(route.ranks, wrapped(route, "--steps 1000000 --pause 5")));
    for (Job* job : running) {
      EXPECT_TRUE(job->wait_for("step 5 done")) << job->output();
      job->restart_clock();
      EXPECT_EQ(kill(job->rank(1), signal), 0);
    }
    for (const Outcome& outcome : jobs.finish()) {
      EXPECT_THAT(outcome.status, AnyOf(128 + signal, 4)) << outcome.output;
      EXPECT_LT(outcome.seconds, kLoopSeconds);
      EXPECT_EQ(outcome.left_behind, "");
    }
  }
}

TEST(TheEndOfAWrappedLoop, ByASignalToMpirunIsItsOwn) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Jobs jobs;
    for (const Route& route : kRoutes) {
      Job& job = jobs.start(route.ranks, wrapped(route, "--steps 1000000 --pause 5"));
      EXPECT_TRUE(job.wait_for("step 5 done")) << job.output();
      job.restart_clock();
      EXPECT_EQ(kill(job.launcher(), signal), 0);
    }
    for (const Outcome& outcome : jobs.finish()) {
      EXPECT_EQ(outcome.status, 1) << outcome.output;
      EXPECT_LT(outcome.seconds, kLoopSeconds);
      EXPECT_EQ(outcome.left_behind, "");
    }
  }
}

TEST(AWrappedLoop, NamesTheRankThatDoesNotCome) {
  for (const std::string fault : {"sleeps", "sleeps-in-backward"})
    for (const Outcome& outcome :
         outcomes_of(fmt::format("--stall-timeout {} --fault {} --step 7", kStallTimeout, fault))) {
      const std::string line = expect_failure(outcome);
      EXPECT_EQ(outcome.status, 4);
      EXPECT_THAT(line, HasSubstr(name_of_rank(1)));
      EXPECT_THAT(line, HasSubstr("step 7"));
      EXPECT_THAT(line, Not(HasSubstr("rank 0, host")));
    }
}

TEST(AWrappedLoop, EndsWhereARankIsKilled) {
  for (const Outcome& outcome : outcomes_of("--fault killed")) expect_failure(outcome);
}

}  // namespace
}  // namespace lockstep::faults
