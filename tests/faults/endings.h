// Requirements on every end of a job.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/system/host.h"
#include "tests/faults/job.h"

namespace lockstep::inline v0::faults {

inline constexpr double kStallTimeout = 2;
inline constexpr double kGrace = 15;     // for the end of a job, beyond the timeout
inline constexpr double kDeadline = 60;  // after which a test aborts a job

/// Routes between ranks of one host, each with a number of ranks.
struct Route {
  const char* name;
  int ranks;
};
inline constexpr std::array<Route, 2> kRoutes = {Route{"shared-memory", 2}, Route{"ring", 3}};

/// "rank 1, host H"
inline std::string name_of_rank(int rank) {
  return fmt::format("rank {}, host {}", rank, host_name());
}

/// A variable of the environment of jobs that start during its scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

/// The error lines. mpirun and the library print others.
inline std::vector<std::string> error_lines(const Outcome& outcome) {
  return outcome.lines_with("lockstep: error: ");
}

/// Matches the line of an exception that not all ranks had.
inline auto is_error_of_rank(const std::string& message) {
  return ::testing::AllOf(
      ::testing::StartsWith(fmt::format("lockstep: error: {} (rank ", message)),
      ::testing::ContainsRegex(fmt::format("rank [0-9], host {}, step [0-9]+.$", host_name())));
}

/// Expects an end in time with one error line and without leftovers. Returns that line.
inline std::string expect_error(const Outcome& outcome, double stall_timeout = kStallTimeout) {
  EXPECT_LT(outcome.seconds, stall_timeout + kGrace);
  EXPECT_EQ(outcome.left_behind, "");
  const std::vector<std::string> lines = error_lines(outcome);
  EXPECT_EQ(lines.size(), 1U) << outcome.output;
  return lines.empty() ? "" : lines.front();
}

/// expect_error() with a nonzero exit status.
inline std::string expect_failure(const Outcome& outcome, double stall_timeout = kStallTimeout) {
  EXPECT_GT(outcome.status, 0) << outcome.output;
  return expect_error(outcome, stall_timeout);
}

/// Jobs that run concurrently, because they mostly wait.
class Jobs {
 public:
  Job& start(int ranks, const std::string& arguments) {
    return *jobs_.emplace_back(std::make_unique<Job>(ranks, arguments));
  }
  std::vector<Outcome> finish() {
    std::vector<Outcome> outcomes;
    for (const auto& job : jobs_) outcomes.push_back(job->finish(kDeadline));
    return outcomes;
  }

 private:
  std::vector<std::unique_ptr<Job>> jobs_;
};

/// Runs a training for each of `arguments` on each route, all concurrently.
inline std::vector<Outcome> on_all_routes(const std::vector<std::string>& arguments) {
  Jobs jobs;
  for (const std::string& words : arguments)
    for (const Route& route : kRoutes)
      jobs.start(route.ranks, fmt::format("--allreduce {} --stall-timeout {} {}", route.name,
                                          kStallTimeout, words));
  return jobs.finish();
}

}  // namespace lockstep::inline v0::faults
