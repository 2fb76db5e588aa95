// The end of trainings that finish, fail with an exception, or receive a signal.
#include <fmt/format.h>
#include <csignal>

#include "tests/faults/endings.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kSeconds = 10;  // limit of the end

void expect_clean(const Outcome& outcome, int status) {
  EXPECT_EQ(outcome.status, status) << outcome.output;
  EXPECT_LT(outcome.seconds, kSeconds);
  EXPECT_EQ(outcome.left_behind, "");
  EXPECT_THAT(outcome.output, Not(HasSubstr("[watchdog]")));
}

std::string on(const Route& route) { return fmt::format("--allreduce {} ", route.name); }

TEST(JobEnd, AfterTheTraining) {
  Jobs jobs;
  for (const int ranks : {2, 3, 4})
    for (const Route& route : kRoutes) jobs.start(ranks, on(route));
  for (const Outcome& outcome : jobs.finish()) {
    expect_clean(outcome, 0);
    EXPECT_THAT(outcome.output, HasSubstr("trained 20 steps"));
  }
}

/// Injects `fault` on each rank in turn, with one rank after it.
void expect_end_by_exception(const std::string& fault, const std::string& message) {
  Jobs jobs;
  for (const int rank : {0, 1, 2})
    for (const Route& route : kRoutes)
      jobs.start(rank + 2, on(route) + fmt::format("--fault {} --rank {}", fault, rank));
  for (const Outcome& outcome : jobs.finish()) {
    expect_clean(outcome, 1);
    EXPECT_THAT(error_lines(outcome), ElementsAre(is_error_of_rank(message))) << outcome.output;
  }
}

TEST(JobEnd, ByAnExceptionBetweenSteps) {
  expect_end_by_exception("throws", "a shard cannot be read");
}

TEST(JobEnd, ByAnExceptionInBackward) {
  expect_end_by_exception("throws-in-backward", "a layer cannot go on");
}

class JobEndBySignal : public ::testing::TestWithParam<int> {
 protected:
  /// Trainings on 2, 3 and 4 ranks that do not end by themselves; `process` returns the process to
  /// signal.
  template <typename Process>
  std::vector<Outcome> signal_to(Process process) {
    Jobs jobs;
    std::vector<Job*> running;
    for (const int ranks : {2, 3, 4})
      for (const Route& route : kRoutes)
        running.push_back(&jobs.start(ranks, on(route) + "--steps 1000000 --pause 5"));
    for (std::size_t i = 0; i < running.size(); ++i) {
      EXPECT_TRUE(running[i]->wait_for("step 5 done")) << running[i]->output();
      running[i]->restart_clock();
      EXPECT_EQ(kill(process(*running[i], static_cast<int>(i / kRoutes.size())), GetParam()), 0);
    }
    return jobs.finish();
  }
};

INSTANTIATE_TEST_SUITE_P(Signals, JobEndBySignal, ::testing::Values(SIGTERM, SIGINT),
                         [](const auto& signal) {
                           return signal.param == SIGTERM ? "Term" : "Int";
                         });

TEST_P(JobEndBySignal, ToOneRank) {
  for (const Outcome& outcome : signal_to([](Job&job, int rank) { return job.rank(rank); })) {
    expect_clean(outcome, 128 + GetParam());
    EXPECT_THAT(outcome.output, HasSubstr("trained "));
  }
}

// Open MPI's mpirun then exits with status 1.
TEST_P(JobEndBySignal, ToMpirun) {
  for (const Outcome& outcome :
       signal_to([](const Job&job, int /*rank*/) { return job.launcher(); }))
    expect_clean(outcome, 1);
}

}  // namespace
}  // namespace lockstep::inline v0::faults
