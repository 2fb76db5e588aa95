// A job whose ranks run steps under a watchdog until one of them fails on purpose.
// watchdog_mpi_test starts it under mpirun.
//
//   watchdog_program FAULT RANK TIMEOUT
//
// FAULT     none | killed | stopped | sleeps | broken | throws
// RANK      the rank that fails, in step 20, before bucket 1 of 3
// TIMEOUT   stall timeout in seconds
#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/allreduce/watchdog/watchdog.h"
#include "lockstep/base/error.h"
#include "tests/support/mpi_ranks.h"

namespace {

using lockstep::allreduce::Activity;
using lockstep::allreduce::CollectiveScope;
using lockstep::allreduce::Phase;

constexpr int kFailingStep = 20;
constexpr int kFailingBucket = 1;
constexpr int kBuckets = 3;
constexpr std::chrono::milliseconds kCompute(
    40);  // a step, so that the failing one is some heartbeats after the start

void wait_for_ever() { std::this_thread::sleep_for(std::chrono::hours(1)); }

void fail(const std::string& fault, Activity& activity) {
  if (fault == "killed") std::raise(SIGKILL);
  if (fault == "stopped") std::raise(SIGSTOP);
  if (fault == "sleeps") wait_for_ever();
  if (fault == "throws") throw std::runtime_error("a shard cannot be read");
  if (fault == "broken") {
    const CollectiveScope scope(&activity, "all_reduce", kFailingBucket);
    wait_for_ever();
  }
}

void run_step(int step, const std::string& fault, bool fails_here, Activity& activity) {
  activity.set_step(step);
  activity.set_phase(Phase::compute);
  std::this_thread::sleep_for(kCompute);
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    if (fails_here && step == kFailingStep && bucket == kFailingBucket) fail(fault, activity);
    const CollectiveScope scope(&activity, "all_reduce", bucket);
    float value = 1;
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  activity.set_phase(Phase::update);
}

void train(const std::string& fault, int failing_rank, double timeout) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Activity activity;
  activity.describe_buckets({"fc3", "fc2 .. conv5", "conv4 .. fc1"});
  const lockstep::allreduce::Watchdog watchdog(
      lockstep::allreduce::ranks_of(), {&activity},
      {.stall_timeout = timeout, .advice = "start it again"});
  for (int step = 0; step < 2 * kFailingStep; ++step)
    run_step(step, fault, rank == failing_rank, activity);
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  try {
    train(argv[1], std::atoi(argv[2]), std::atof(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: error: {}\n", error.what());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // as job::Session::end_job()
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
  return 0;
}
