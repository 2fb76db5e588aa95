// Ranks that hang while no collective of a training is in flight: before the setup of the replicas,
// and after the training.
#include <fmt/format.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/faults/endings.h"
#include "tests/paths.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(ARankWhoseReadsHang, IsNamedWhileItIndexes) {
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-hanging-{}.csv", getpid());
  std::ofstream(file) << "a,label\n1,0\n2,1\n";
  const ScopedVariable preload("LD_PRELOAD", LOCKSTEP_HANGING_READS);
  const ScopedVariable name("HANGING_FILE", file.filename());
  const ScopedVariable rank("HANGING_RANK", "1");
  const ScopedVariable when("HANGING_WHEN", file);
  for (const Outcome& outcome :
       on_all_routes({fmt::format("--data csv:{}:label=label", file.string())})) {
    EXPECT_THAT(expect_failure(outcome),
                AllOf(HasSubstr("[watchdog] expected progress within 2 s; " + name_of_rank(1) +
                                ", before the first step, waiting before "),
                      HasSubstr(" s in starting; ")));
    EXPECT_EQ(outcome.status, 4);
  }
  std::filesystem::remove(file);
}

TEST(ARankWhoseReadsHang, IsNamedWhenTheTrainingIsOver) {
  for (const Outcome& outcome : on_all_routes({"--fault stops-and-sleeps --prefetch 4"})) {
    EXPECT_THAT(expect_failure(outcome),
                AllOf(HasSubstr("[watchdog] expected progress within 2 s; " + name_of_rank(1)),
                      HasSubstr(" s in ending; ")));
    EXPECT_EQ(outcome.status, 4);
  }
}

// The text of the exception is printed at once; the job ends because the rank does not reach its
// end.
TEST(ARankWhoseReadsHang, PrintsItsExceptionFirst) {
  for (const Outcome& outcome : on_all_routes({"--fault throws-and-sleeps --prefetch 4"})) {
    EXPECT_GT(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kStallTimeout + kGrace);
    EXPECT_EQ(outcome.left_behind, "");
    const auto lines = error_lines(outcome);
    ASSERT_FALSE(lines.empty()) << outcome.output;
    EXPECT_THAT(lines.front(), is_error_of_rank("a shard cannot be read")) << outcome.output;
    EXPECT_THAT(lines.back(),
                AnyOf(HasSubstr(name_of_rank(1)), HasSubstr("a shard cannot be read")));
  }
}

// The delay is the subject.
TEST(LongSuspension, IsNoFailureIfAllRanksAreSuspended) {
  Jobs jobs;
  std::vector<Job*> running;
  for (const Route& route : kRoutes)
    running.push_back(&jobs.start(
        route.ranks, fmt::format("--allreduce {} --stall-timeout {} --steps 200 --pause 20",
                                 route.name, kStallTimeout)));
  const auto signal_all = [&](int signal) {
    for (std::size_t i = 0; i < running.size(); ++i)
      for (int rank = 0; rank < kRoutes[i].ranks; ++rank)
        EXPECT_EQ(kill(running[i]->rank(rank), signal), 0);
  };
  for (Job* job : running) ASSERT_TRUE(job->wait_for("step 5 done")) << job->output();
  signal_all(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::duration<double>(3 * kStallTimeout));
  signal_all(SIGCONT);
  for (const Outcome& outcome : jobs.finish()) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("trained 200 steps"));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::faults
