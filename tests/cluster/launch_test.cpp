// Ranks that connect themselves across hosts with separate networks, names and memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/cluster/hosts.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kSmallTraining =
    "train --model mlp --epochs 1 --data synthetic:8x8x1,4,512 --global-batch 64 --log-format json";

class ConnectedHosts : public HostsTest {
 protected:
  static void start_cluster(int hosts) {
    ASSERT_EQ(run(cluster({"up", "--name", name(), "--hosts", std::to_string(hosts)})).status, 0);
  }
  /// `lockstep ARGUMENTS` on host `rank`, in a job of one rank per host by TF_CONFIG.
  static Words task(int rank, int hosts, const std::string& arguments) {
    std::string workers;
    for (int host = 0; host < hosts; ++host)
      workers += fmt::format(R"({}"node{}:2222")", host == 0 ? "" : ",", host);
    Words words = cluster(
        {"exec", "--name", name(), std::to_string(rank), "--", "env",
         "LOCKSTEP_JOB_SECRET=0123456789abcdef0123456789abcdef",
         fmt::format(
             R"(TF_CONFIG={{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}})",
             workers, rank)});
    for (const std::string& word : lockstep(arguments)) words.push_back(word);
    return words;
  }
  /// Runs all ranks of such a job; results in rank order.
  static std::vector<Result> job(int hosts, const std::string& arguments) {
    std::vector<std::unique_ptr<Process>> tasks;
    for (int rank = 0; rank < hosts; ++rank)
      tasks.push_back(std::make_unique<Process>(task(rank, hosts, arguments)));
    std::vector<Result> results;
    for (const auto& each : tasks) results.push_back(each->finish());
    return results;
  }
};

TEST_F(ConnectedHosts, TrainAsOneJob) {
  start_cluster(3);
  const auto results = job(3, kSmallTraining);
  for (const Result& result : results) ASSERT_EQ(result.status, 0) << result.errors;
  const auto start = results[0].event("start");
  EXPECT_EQ(start["nodes"], 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(start["devices"][rank]["host"], fmt::format("node{}", rank));
    EXPECT_EQ(start["devices"][rank]["interface"], "eth0");
  }
  EXPECT_EQ(start["allreduce"], "ring");
  EXPECT_EQ(results[0].event("end")["steps"], 8);
  // mpirun over the same hosts adds in the same order.
  const Words by_mpirun = cluster({"run", "--name", name()}, kSmallTraining);
  EXPECT_EQ(run(by_mpirun).event("end")["parameter_hash"],
            results[0].event("end")["parameter_hash"]);
}

TEST_F(ConnectedHosts, AreStartedBySsh) {
  start_cluster(2);
  const checkpoint::ScratchDirectory directory;
  std::filesystem::create_directories(directory.path());
  std::ofstream(directory.path() / "ssh")
      << "#!/bin/sh\nshift 2; host=$1; shift\nexec " LOCKSTEP_SOURCE_DIR "/scripts/cluster exec "
      << "--name " << name() << " ${host#node} -- sh -c \"$*\"\n";
  std::filesystem::permissions(directory.path() / "ssh", std::filesystem::perms::owner_all);
  // The launcher is on another host: this one.
  Words words = {"env",
                 fmt::format("PATH={}:{}", directory.path().string(), std::getenv("PATH")),
                 LOCKSTEP_PROGRAM,
                 "launch",
                 "--hosts",
                 "node0:2,node1:2",
                 "--"};
  for (const std::string& word : lockstep(kSmallTraining)) words.push_back(word);
  const Result result = run(words);
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("start")["ranks"], 4);
  EXPECT_EQ(result.event("start")["nodes"], 2);
}

TEST_F(ConnectedHosts, NameARankThatCannotBeReached) {
  start_cluster(2);
  ASSERT_EQ(run(cluster({"cut", "--name", name(), "1"})).status, 0);
  const auto results = job(2, kSmallTraining + " --start-timeout 3");
  for (const Result& result : results) EXPECT_EQ(result.status, 4);
  EXPECT_THAT(results[0].errors, AllOf(HasSubstr("[start] expected all 2 ranks to join within 3 s"),
                                       HasSubstr("no answer of rank 1")));
  EXPECT_THAT(results[1].errors, HasSubstr("[start] expected rank 0 at node0:2222 within 3 s"));
}

TEST_F(ConnectedHosts, NameThePairThatDoesNotReachEachOther) {
  start_cluster(3);
  ASSERT_EQ(on(1, {"ip", "route", "add", "unreachable", "10.77.0.3/32"}).status, 0);
  const auto results = job(3, kSmallTraining + " --start-timeout 10");
  for (const Result& result : results) EXPECT_EQ(result.status, 4);
  EXPECT_THAT(
      results[2].errors,
      HasSubstr("[start] expected rank 1 on node1 to be reached from rank 2; at 10.77.0.2"));
}

TEST_F(ConnectedHosts, RequireASecret) {
  start_cluster(2);
  Words words = task(1, 2, kSmallTraining);
  std::ranges::replace_if(
      words, [](const std::string& word) { return word.starts_with("LOCKSTEP_JOB_SECRET="); },
      "NOTHING=");
  const Result result = run(words);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("expected a secret of the job"));
}

TEST_F(ConnectedHosts, ListenOnTheRendezvousAddress) {
  start_cluster(2);
  // Another address of the first host, which the others do not use.
  ASSERT_EQ(on(0, {"ip", "address", "add", "10.77.9.1/24", "dev", "eth0"}).status, 0);
  Process first(task(0, 2, kSmallTraining));
  const auto listens = [&](const std::string& address) {
    return on(0, {"bash", "-c", "exec 3<>/dev/tcp/" + address + "/2222"}).status == 0;
  };
  for (int attempt = 0; attempt < 100 && !listens("10.77.0.1"); ++attempt) usleep(50000);
  EXPECT_TRUE(listens("10.77.0.1"));
  EXPECT_FALSE(listens("10.77.9.1"));
  EXPECT_FALSE(listens("127.0.0.1"));
  EXPECT_EQ(run(task(1, 2, kSmallTraining)).status, 0);
  EXPECT_EQ(first.finish().status, 0);
}

using LongConnectedHosts = ConnectedHosts;

// The delay is the subject: 35 s, as for a switch that restarts.
TEST_F(LongConnectedHosts, SurviveAnOutageShorterThanTheStallTimeout) {
  start_cluster(2);
  // The default of systems. Hosts of scripts/cluster abandon an address after three seconds.
  for (const int host : {0, 1})
    ASSERT_EQ(on(host, {"sh", "-c", "echo 15 >/proc/sys/net/ipv4/tcp_retries2"}).status, 0);
  const std::string train = kSmallTraining + " --log-every 100 --epochs 100000 --stall-timeout 120";
  Process first(task(0, 2, train));
  Process other(task(1, 2, train));
  ASSERT_TRUE(first.wait_for(R"("event":"step")"));
  ASSERT_EQ(run(cluster({"cut", "--name", name(), "1"})).status, 0);
  std::this_thread::sleep_for(std::chrono::seconds(35));
  ASSERT_EQ(run(cluster({"mend", "--name", name(), "1"})).status, 0);
  for (int steps = 0; steps < 20; ++steps)
    ASSERT_TRUE(first.wait_for(R"("event":"step")")) << first.finish().errors;
}  // TearDown() ends the job with its hosts, which signals do not reach

}  // namespace
}  // namespace lockstep::inline v0::apps
