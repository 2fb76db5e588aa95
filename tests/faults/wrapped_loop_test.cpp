// Custom loops with a DistributedOptimizer end soon, with the right status and without leftovers.
#include <fmt/format.h>
#include <csignal>

#include "tests/faults/endings.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double kLoopSeconds = 10;  // limit of the end

std::string wrapped(const Route& route, const std::string& words) {
  return fmt::format("--wrapped --allreduce {} {}", route.name, words);
}

std::vector<Outcome> outcomes_of(const std::string& words, int more_ranks = 0) {
  Jobs jobs;
  for (const Route& route : kRoutes) jobs.start(route.ranks + more_ranks, wrapped(route, words));
  return jobs.finish();
}

TEST(WrappedLoopEnd, IsSilentOnSuccess) {
  for (const Outcome& outcome : outcomes_of("", 1)) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kLoopSeconds);
    EXPECT_EQ(outcome.left_behind, "");
    EXPECT_THAT(outcome.output, HasSubstr("trained 20 steps"));
  }
}

TEST(WrappedLoopEnd, ByAnExceptionOnOneRankIsOneLine) {
  for (const auto& [fault, message] : {std::pair("throws", "a shard cannot be read"),
                                       std::pair("throws-in-backward", "a layer cannot go on")})
    for (const Outcome& outcome : outcomes_of(fmt::format("--fault {}", fault))) {
      EXPECT_EQ(outcome.status, 1) << outcome.output;
      EXPECT_LT(outcome.seconds, kLoopSeconds);
      EXPECT_EQ(outcome.left_behind, "");
      EXPECT_THAT(error_lines(outcome), ElementsAre(is_error_of_rank(message)));
    }
}

TEST(WrappedLoopEnd, ByAnUncaughtExceptionEndsAllRanks) {
  for (const Outcome& outcome : outcomes_of("--unguarded --fault throws")) {
    EXPECT_GT(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kLoopSeconds);
    EXPECT_EQ(outcome.left_behind, "");
    EXPECT_THAT(outcome.output, HasSubstr("a shard cannot be read"));
  }
}

// This loop does not handle signals. Either the launcher or the watchdog of the others detects its
// end first.
TEST(WrappedLoopEnd, ByASignalEndsAllRanks) {
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

TEST(WrappedLoopEnd, ByASignalToMpirunHasItsStatus) {
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

TEST(WrappedLoop, NamesTheRankThatIsAbsent) {
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

TEST(WrappedLoop, ReportsHowAProgramCanAvoidTheError) {
  for (const Outcome& outcome :
       outcomes_of(fmt::format("--stall-timeout {} --fault sleeps", kStallTimeout)))
    EXPECT_THAT(expect_failure(outcome), AllOf(HasSubstr("tick()"), HasSubstr("stall_timeout"),
                                               HasSubstr("LOCKSTEP_STALL_TIMEOUT")));
}

// The delay is the subject. The waiting ranks may spin in collectives.
TEST(WrappedLoop, ContinuesAfterWarningsIfARankComputes) {
  for (const int rank : {0, 1})
    for (const Outcome& outcome : outcomes_of(
             fmt::format("--stall-timeout {} --fault computes --rank {}", kStallTimeout, rank))) {
      EXPECT_EQ(outcome.status, 0) << outcome.output;
      EXPECT_THAT(outcome.output, HasSubstr("trained 20 steps"));
      const auto warnings = outcome.lines_with("lockstep: warning: [watchdog] ");
      ASSERT_THAT(warnings, SizeIs(AllOf(Ge(1U), Le(2U)))) << outcome.output;
      EXPECT_THAT(warnings.front(),
                  AllOf(HasSubstr("expected progress within 2 s; " + name_of_rank(rank) +
                                  ", step 5, waiting before bucket 0 (layers back) for "),
                        HasSubstr("the job continues, because"), HasSubstr("tick()"),
                        HasSubstr("stall_timeout"), HasSubstr("LOCKSTEP_STALL_TIMEOUT")));
    }
}

TEST(WrappedLoop, EndsAtOnceIfARankHasReturned) {
  for (const int rank : {0, 1})
    for (const Outcome& outcome :
         outcomes_of(fmt::format("--stall-timeout 3600 --fault returns --rank {}", rank))) {
      EXPECT_THAT(expect_failure(outcome, 0),
                  AllOf(HasSubstr("[watchdog] expected every rank to make the same calls to its "
                                  "end; " +
                                  name_of_rank(rank) + ", has left; "),
                        HasSubstr("at step 5, in ")));
      EXPECT_EQ(outcome.status, 4);
    }
}

TEST(WrappedLoop, ObeysTheTimeoutOfItsEnvironment) {
  {
    const ScopedVariable timeout("LOCKSTEP_STALL_TIMEOUT", "2");
    for (const Outcome& outcome : outcomes_of("--stall-timeout 3600 --fault sleeps"))
      EXPECT_THAT(expect_failure(outcome),
                  HasSubstr("[watchdog] expected progress within 2 s; " + name_of_rank(1)));
  }
  const ScopedVariable timeout("LOCKSTEP_STALL_TIMEOUT", "soon");
  for (const Outcome& outcome : outcomes_of("")) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(error_lines(outcome),
                Contains(HasSubstr("[environment] expected LOCKSTEP_STALL_TIMEOUT")));
  }
}

TEST(WrappedLoop, NamesTheRankThatIsAbsentFromItsGroup) {
  for (const Outcome& outcome : outcomes_of(
           fmt::format("--grouped --stall-timeout {} --fault sleeps --step 7", kStallTimeout))) {
    const std::string line = expect_failure(outcome);
    EXPECT_EQ(outcome.status, 4);
    EXPECT_THAT(line, AllOf(HasSubstr(name_of_rank(1)), HasSubstr(" of ranks "),
                            Not(HasSubstr("rank 0, host"))));
  }
}

TEST(WrappedLoop, EndsIfARankIsKilled) {
  for (const Outcome& outcome : outcomes_of("--fault killed")) expect_failure(outcome);
}

}  // namespace
}  // namespace lockstep::inline v0::faults
