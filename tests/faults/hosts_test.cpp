// Trainings across hosts in which a cable is cut, or a rank of another host is killed.
#include "tests/cluster/hosts.h"

#include <fmt/format.h>

#include "tests/faults/endings.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kTimeout = 3;

class OtherHosts : public apps::HostsTest {
 protected:
  /// The launcher of `ranks` ranks on each host of the running cluster.
  static std::vector<std::string> launcher(int ranks) {
    return apps::cluster(
        {"run", "--name", name(), "--ranks-per-host", std::to_string(ranks), "--"});
  }
  static void start_cluster(int hosts) {
    ASSERT_EQ(
        apps::run(apps::cluster({"up", "--name", name(), "--hosts", std::to_string(hosts)})).status,
        0);
  }
};

TEST_F(OtherHosts, AreNamedWhenDisconnectedAndAllRanksEnd) {
  start_cluster(2);
  Job job(launcher(2),
          fmt::format("--allreduce hierarchical --stall-timeout {} --steps 1000000 --pause 5",
                      kTimeout));
  ASSERT_TRUE(job.wait_for("step 10 done")) << job.output();
  job.restart_clock();
  ASSERT_EQ(apps::run(apps::cluster({"cut", "--name", name(), "1"})).status, 0);
  const Outcome outcome = job.finish(kDeadline);
  EXPECT_THAT(expect_error(outcome, kTimeout),
              AllOf(HasSubstr("[watchdog] expected a heartbeat from every rank within 3 s; rank 2, "
                              "host node1, has not been heard from for "),
                    HasSubstr("; rank 3, host node1, has not been heard from for ")));
  // The mpirun of Open MPI 5.0.7 exits with 0 or 1 if it has lost a daemon, also after MPI_Abort.
  if (apps::run({"sh", "-c", "mpirun --version | grep -q '(Open MPI) 4'"}).status == 0) {
    EXPECT_EQ(outcome.status, 4);
  }
}

TEST_F(OtherHosts, NameTheirKilledRank) {
  start_cluster(2);
  Job job(
      launcher(1),
      fmt::format(
          "--allreduce ring --stall-timeout {} --units 1024 --bucket-bytes 4194304 --steps 1000000",
          kTimeout));
  ASSERT_TRUE(job.wait_for("step 2 done")) << job.output();
  job.restart_clock();
  // The process ID is that within the PID namespace of the cluster.
  ASSERT_EQ(on(1, {"kill", "-KILL", std::to_string(job.rank(1))}).status, 0);
  EXPECT_THAT(
      expect_failure(job.finish(kDeadline), kTimeout),
      HasSubstr("[watchdog] expected every rank to stay connected; rank 1, host node1, is gone ("));
}

}  // namespace
}  // namespace lockstep::inline v0::faults
