// Trainings in which one rank fails: their end, and the rank they name.
#include <fmt/format.h>
#include <csignal>
#include <random>
#include <thread>

#include "tests/faults/endings.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kResumeAdvice =
    "the same command resumes from the last checkpoint, if the run had a --checkpoint-dir";

/// The rank that fails in job `index` of two for rank 0 and two for rank 1.
int rank_of(std::size_t index) { return static_cast<int>(index / kRoutes.size()); }

// --- At once

TEST(AKilledRank, IsNamed) {
  const auto outcomes = on_all_routes({"--fault killed --rank 0", "--fault killed --rank 1"});
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    EXPECT_THAT(expect_failure(outcomes[i]),
                AllOf(HasSubstr("[watchdog] expected every rank to stay connected; " +
                                name_of_rank(rank_of(i)) + ", is gone ("),
                      HasSubstr(kResumeAdvice)));
}

TEST(ARankThatExits, IsNamedAlthoughItsStatusIsZero) {
  for (const Outcome& outcome : on_all_routes({"--fault leaves"}))
    EXPECT_THAT(expect_failure(outcome), HasSubstr(name_of_rank(1) + ", is gone ("));
}

// No rank waits for another any more, so only the launcher detects it.
TEST(ARankThatEndsWithoutMpi, FailsTheJob) {
  for (const Outcome& outcome : on_all_routes({"--fault leaves-after-training"})) {
    EXPECT_GT(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kStallTimeout + kGrace);
    EXPECT_EQ(outcome.left_behind, "");
    EXPECT_THAT(outcome.output, HasSubstr("trained 20 steps"));
  }
}

TEST(ARankWithAnotherLayout, EndsTheJobBeforeTheFirstStep) {
  for (const Outcome& outcome : on_all_routes({"--fault layout"})) {
    EXPECT_THAT(expect_failure(outcome),
                HasSubstr("[all_reduce] expected the same parameters on all replicas; "
                          "dense_2/kernel has 1024 elements on replica 0 and 1056 on replica 1"));
    EXPECT_EQ(outcome.status, 4);
    EXPECT_TRUE(outcome.lines_with("step 1 done").empty());
  }
}

// The first error occurs on all ranks and is caught by the program. It must not hide that of the
// second training.
TEST(ARankThatFailsAfterARestart, EndsTheJobWithItsOwnError) {
  Jobs jobs;
  for (const Route& route : kRoutes)
    for (const char* when : {"training", "the-replicas"})
      jobs.start(route.ranks,
                 fmt::format("--allreduce {} --again --fault throws-before-{}", route.name, when));
  for (const Outcome& outcome : jobs.finish()) {
    EXPECT_GT(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, kGrace) << outcome.output;
    EXPECT_EQ(outcome.left_behind, "");
    EXPECT_THAT(error_lines(outcome), ElementsAre(HasSubstr("a shard cannot be read"),
                                                  HasSubstr("a file cannot be read")))
        << outcome.output;
  }
}

// The delay is the subject: a program may pause between two trainings.
TEST(ARestartedTraining, IsAllowedAfterTheStallTimeout) {
  Jobs jobs;
  for (const Route& route : kRoutes)
    jobs.start(route.ranks, fmt::format("--allreduce {} --again --rest {} --stall-timeout {}",
                                        route.name, 2 * kStallTimeout, kStallTimeout));
  for (const Outcome& outcome : jobs.finish()) {
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("trained 20 steps"));
  }
}

// --- After the timeout

TEST(AStoppedRank, IsNamed) {
  for (const Outcome& outcome : on_all_routes({"--fault stopped --step 10"})) {
    EXPECT_THAT(expect_failure(outcome),
                AllOf(HasSubstr("[watchdog] expected a heartbeat from every rank within 2 s; " +
                                name_of_rank(1) + ", has not been heard from for "),
                      HasSubstr(kResumeAdvice)));
    EXPECT_EQ(outcome.status, 4);
  }
}

/// Expects that rank 1 stalled in its sixth step, before `bucket`.
void expect_stalled(const Outcome& outcome, const std::string& bucket, const std::string& phase,
                    const std::string& others) {
  // For the program's own code, the message also has advice.
  const std::string hint = phase == "idle" ? "the awaited process neither .* overrides; " : "";
  EXPECT_THAT(expect_failure(outcome),
              AllOf(HasSubstr("[watchdog] expected progress within 2 s; " + name_of_rank(1) +
                              ", step 6, waiting before " + bucket + " for "),
                    ContainsRegex(" for [2-9] s in " + phase + "; " + others + " in it; " + hint +
                                  kResumeAdvice)));
  EXPECT_EQ(outcome.status, 4);
}

const std::string kFirstBucket = "bucket 0 (layers dense_3/kernel .. dense_2/kernel)";
const std::string kSecondBucket = "bucket 1 (layers dense_2/bias .. dense_1/kernel)";

// The ring has reduced the first bucket by the middle of the backward pass; shared memory reduces
// all at its end.
TEST(AStalledRank, IsNamedWithStepAndBucket) {
  const auto outcomes = on_all_routes({"--fault sleeps", "--fault sleeps-in-backward"});
  expect_stalled(outcomes[0], kFirstBucket, "idle", "rank 0 is");
  expect_stalled(outcomes[1], kFirstBucket, "idle", "ranks 0,2 are");
  expect_stalled(outcomes[2], kFirstBucket, "compute", "rank 0 is");
  expect_stalled(outcomes[3], kSecondBucket, "compute", "ranks 0,2 are");
}

TEST(AStalledReplica, IsNamedAndNotItsRank) {
  for (const Outcome& outcome :
       on_all_routes({"--fault sleeps-in-backward --replicas 2",
                      "--fault sleeps-in-backward --replicas 2 --replaces"}))
    EXPECT_THAT(
        expect_failure(outcome),
        AllOf(HasSubstr("; replica 3 (" + name_of_rank(1) + "), step 6, waiting before bucket "),
              ContainsRegex(" for [2-9] s in compute; replicas 0,1,2(,4,5)? are in it; ")));
}

TEST(AStalledRankOfSeveralReplicas, IsNamedAndNotTheReplicasThatWait) {
  for (const Outcome& outcome : on_all_routes({"--fault sleeps --replicas 2"}))
    EXPECT_THAT(expect_failure(outcome),
                AllOf(HasSubstr("; replica 2 (" + name_of_rank(1) + "), step 6, waiting before "),
                      ContainsRegex("; replicas 0,1(,4,5)? are in it; ")));
}

TEST(ARankThatWaitsForRecords, IsNamedWithStepAndPhase) {
  for (const Outcome& outcome : on_all_routes({"--fault sleeps-in-input"})) {
    EXPECT_THAT(
        expect_failure(outcome),
        AllOf(HasSubstr("[watchdog] expected progress within 2 s; " + name_of_rank(1) + ", step "),
              HasSubstr(", waiting before " + kFirstBucket + " for "), HasSubstr(" s in input; ")));
    EXPECT_EQ(outcome.status, 4);
  }
}

TEST(ARankThatReturnsEarly, IsNamedAtOnce) {
  const auto outcomes = on_all_routes(
      {"--fault leaves-before-training --rank 0", "--fault leaves-before-training --rank 1"});
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_THAT(expect_failure(outcomes[i]),
                HasSubstr("[watchdog] expected every rank to make the same calls to its end; " +
                          name_of_rank(rank_of(i)) + ", has left; "));
    EXPECT_EQ(outcomes[i].status, 4);
  }
}

// --- At any moment

/// Kills ranks with 12 MB per step in flight, on both routes concurrently. `trial` seeds the choice
/// of ranks and times.
void kill_in_mid_training(unsigned trial) {
  std::mt19937 random(trial);
  Jobs jobs;
  std::vector<Job*> running;
  for (const Route& route : kRoutes)
    running.push_back(&jobs.start(
        3, fmt::format("--allreduce {} --units 1024 --bucket-bytes 4194304 --steps 1000000",
                       route.name)));
  std::vector<int> killed;
  for (Job* job : running) {
    killed.push_back(static_cast<int>(random() % 3));
    const pid_t process = job->rank(killed.back());
    ASSERT_TRUE(job->wait_for("step 2 done")) << job->output();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    job->restart_clock();
    ASSERT_EQ(kill(process, SIGKILL), 0);
  }
  const auto outcomes = jobs.finish();
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    EXPECT_THAT(expect_failure(outcomes[i], 0),
                HasSubstr("[watchdog] expected every rank to stay connected; " +
                          name_of_rank(killed[i]) + ", is gone ("))
        << "trial " << trial << " on " << kRoutes[i].name;
}

TEST(LongRankKilledAtAnyMoment, EndsTheJobAtOnce) {
  for (unsigned trial = 0; trial < 10; ++trial) kill_in_mid_training(trial);
}

}  // namespace
}  // namespace lockstep::inline v0::faults
