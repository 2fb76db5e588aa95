// Jobs in which one rank fails: their end and their output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/paths.h"
#include "tests/support/mpirun.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kTimeout = 2;
constexpr double kGrace = 15;  // for the end of a job on a machine with fewer cores than ranks

struct Outcome {
  int status = 0;
  double seconds = 0;
  std::string output;
};

/// Runs the test program under mpirun until all processes have closed its output.
Outcome run(int ranks, const std::string& fault, int failing_rank) {
  const std::string command = fmt::format("{} {} {} {} {} 2>&1 </dev/null", mpirun_line_on(ranks),
                                          LOCKSTEP_WATCHDOG_PROGRAM, fault, failing_rank, kTimeout);
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(command.c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) outcome.output += piece.data();
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

/// The lines of the watchdogs of all ranks.
std::vector<std::string> verdicts(const Outcome& outcome) {
  std::vector<std::string> lines;
  for (std::size_t begin = outcome.output.find("lockstep: error: [watchdog]");
       begin != std::string::npos;
       begin = outcome.output.find("lockstep: error: [watchdog]", begin + 1))
    lines.push_back(outcome.output.substr(begin, outcome.output.find('\n', begin) - begin));
  return lines;
}

class FailingRank : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kRanks = 3;

  /// Runs the job, and expects an end in time. Returns the first line of a watchdog; all of them
  /// must name the rank.
  std::string verdict_on(const std::string& fault) {
    const Outcome outcome = run(kRanks, fault, GetParam());
    EXPECT_NE(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kTimeout + kGrace);
    const auto lines = verdicts(outcome);
    EXPECT_FALSE(lines.empty()) << outcome.output;
    for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr(name()));
    return lines.empty() ? "" : lines.front();
  }

  static std::string name() { return fmt::format("rank {}, host ", GetParam()); }
};

TEST_P(FailingRank, IsNamedWhenItIsKilled) {
  EXPECT_THAT(
      verdict_on("killed"),
      AllOf(HasSubstr("expected every rank to stay connected; " + name()), HasSubstr(" is gone ("),
            HasSubstr(" before it was at step "), HasSubstr("; start it again")));
}

TEST_P(FailingRank, IsNamedWhenItIsStopped) {
  EXPECT_THAT(verdict_on("stopped"),
              AllOf(HasSubstr("expected a heartbeat from every rank within 2 s; " + name()),
                    HasSubstr(" has not been heard from for "),
                    HasSubstr("before that it was at step "), HasSubstr("; start it again")));
}

TEST_P(FailingRank, IsNamedWithItsBucketWhenItStalls) {
  EXPECT_THAT(
      verdict_on("sleeps"),
      AllOf(HasSubstr("expected progress within 2 s; " + name()),
            HasSubstr(", step 20, waiting before bucket 1 (layers fc2 .. conv5) for "),
            HasSubstr(GetParam() == 2 ? " s in compute; ranks 0,1 are in it; start it again"
                                      : " s in compute; ranks 1,2 are in it; start it again")));
}

INSTANTIATE_TEST_SUITE_P(Watchdog, FailingRank, ::testing::Values(0, 2));

TEST(WatchdogOfAJob, ReportsAStuckCollective) {
  const Outcome outcome = run(3, "broken", 1);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("no rank has made progress for "),
            HasSubstr(
                "ranks 0,1,2 are at step 20, in all_reduce of bucket 1 (layers fc2 .. conv5); no "
                "rank is missing, so a connection between them may be broken; start it again")));
}

TEST(WatchdogOfAJob, LetsAFailingRankReportItsError) {
  const Outcome outcome = run(3, "throws", 1);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("lockstep: error: a shard cannot be read"),
                                    Not(HasSubstr("[watchdog]"))));
}

TEST(WatchdogOfAJob, IsSilentWithoutAFailure) {
  for (const int ranks : {1, 2, 4}) {
    const Outcome outcome = run(ranks, "none", 0);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.output, "");
  }
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
