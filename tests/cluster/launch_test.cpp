// lockstep launch across hosts with separate networks, names and memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/cluster/hosts.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LaunchOnHosts : public HostsTest {
 protected:
  static void start_cluster(int hosts) {
    ASSERT_EQ(run(cluster({"up", "--name", name(), "--hosts", std::to_string(hosts)})).status, 0);
  }
  /// A task that runs lockstep launch with `command` and TF_CONFIG on its host, in a job of one
  /// task per host.
  static Words task(int rank, int hosts, const std::string& options, const Words& command) {
    std::string workers;
    for (int host = 0; host < hosts; ++host)
      workers += fmt::format(R"({}"node{}:2222")", host == 0 ? "" : ",", host);
    Words words = cluster(
        {"exec", "--name", name(), std::to_string(rank), "--", "env",
         "LOCKSTEP_JOB_SECRET=0123456789abcdef0123456789abcdef",
         fmt::format(
             R"(TF_CONFIG={{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}})",
             workers, rank)});
    for (const std::string& word : lockstep("launch " + options)) words.push_back(word);
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  /// Runs all tasks of such a job; results in rank order.
  static std::vector<Result> job(int hosts, const std::string& options, const Words& command) {
    std::vector<std::unique_ptr<Process>> tasks;
    for (int rank = 0; rank < hosts; ++rank)
      tasks.push_back(std::make_unique<Process>(task(rank, hosts, options, command)));
    std::vector<Result> results;
    for (const auto& each : tasks) results.push_back(each->finish());
    return results;
  }
};

TEST_F(LaunchOnHosts, TrainsAsOneJob) {
  start_cluster(3);
  const auto results =
      job(3, "", lockstep("train --model mlp --data synthetic:8x8x1,4,512 --log-format json"));
  for (const Result& result : results) ASSERT_EQ(result.status, 0) << result.errors;
  const auto start = results[0].event("start");
  EXPECT_EQ(start["nodes"], 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(start["devices"][rank]["host"], fmt::format("node{}", rank));
    EXPECT_EQ(start["devices"][rank]["interface"], "eth0");
  }
  EXPECT_EQ(results[0].event("end")["steps"], 8);
}

TEST_F(LaunchOnHosts, TrainsWithDifferentInterfaceNames) {
  start_cluster(2);
  const std::string change =
      "ip link set eth0 down && ip link set eth0 name eno1 && ip link set eno1 up";
  ASSERT_EQ(on(0, {"sh", "-c", change}).status, 0);
  const auto results =
      job(2, "", lockstep("train --model mlp --data synthetic:8x8x1,4,512 --log-format json"));
  for (const Result& result : results) ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(results[0].event("start")["devices"][0]["interface"], "eno1");
  EXPECT_EQ(results[0].event("start")["devices"][1]["interface"], "eth0");
}

TEST_F(LaunchOnHosts, NamesAHostThatCannotBeReached) {
  start_cluster(2);
  ASSERT_EQ(run(cluster({"cut", "--name", name(), "1"})).status, 0);
  const auto results = job(2, "--timeout 3", {"true"});
  EXPECT_EQ(results[0].status, 4);
  EXPECT_THAT(results[0].errors, HasSubstr("expected all 2 tasks to connect to port 2222 of host "
                                           "node0 within 3 s; 1 connected, missing "
                                           "rank 1 (worker:1) on host node1"));
  EXPECT_EQ(results[1].status, 4);
  EXPECT_THAT(
      results[1].errors,
      AllOf(
          HasSubstr("expected to connect to rank 0 at node0:2222 within 3 s; from host node1 by "),
          HasSubstr(" to 10.77.0.1: ")));
}

TEST_F(LaunchOnHosts, NamesThePairOfHostsThatDoNotReachEachOther) {
  start_cluster(3);
  ASSERT_EQ(on(1, {"ip", "route", "add", "unreachable", "10.77.0.3/32"}).status, 0);
  const auto results = job(3, "", {"true"});
  for (const Result& result : results) {
    EXPECT_EQ(result.status, 4);
    EXPECT_THAT(
        result.errors,
        AllOf(HasSubstr("[launch] expected hosts that reach each other; "),
              HasSubstr(
                  "host node1 does not reach node2 at 10.77.0.3 by no interface: No route to host"),
              HasSubstr(
                  "host node2 does not reach node1 at 10.77.0.2 by eth0: Connection timed out")));
  }
}

TEST_F(LaunchOnHosts, RequiresASecret) {
  start_cluster(2);
  Words words = task(1, 2, "", {"true"});
  std::ranges::replace_if(
      words, [](const std::string& word) { return word.starts_with("LOCKSTEP_JOB_SECRET="); },
      "NOTHING=");
  const Result result = run(words);
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("[launch] expected a secret of the job"));
}

TEST_F(LaunchOnHosts, ListensOnTheRendezvousAddress) {
  start_cluster(2);
  // Another address of the first host, which the others do not use.
  ASSERT_EQ(on(0, {"ip", "address", "add", "10.77.9.1/24", "dev", "eth0"}).status, 0);
  Process first(task(0, 2, "--timeout 30", {"true"}));
  const auto listens = [&](const std::string& address) {
    return on(0, {"bash", "-c", "exec 3<>/dev/tcp/" + address + "/2222"}).status == 0;
  };
  for (int attempt = 0; attempt < 100 && !listens("10.77.0.1"); ++attempt) usleep(50000);
  EXPECT_TRUE(listens("10.77.0.1"));
  EXPECT_FALSE(listens("10.77.9.1"));
  EXPECT_FALSE(listens("127.0.0.1"));
  EXPECT_EQ(run(task(1, 2, "", {"true"})).status, 0);
  EXPECT_EQ(first.finish().status, 0);
}

using LongLaunchOnHosts = LaunchOnHosts;

// The delay is the subject: 35 s, as for a switch that restarts.
TEST_F(LongLaunchOnHosts, SurvivesAnOutageShorterThanTheStallTimeout) {
  start_cluster(2);
  // The default of systems. Hosts of scripts/cluster abandon an address after three seconds.
  for (const int host : {0, 1})
    ASSERT_EQ(on(host, {"sh", "-c", "echo 15 >/proc/sys/net/ipv4/tcp_retries2"}).status, 0);
  const Words train = lockstep(
      "train --model mlp --data synthetic:8x8x1,4,512 --global-batch 64 --log-format json "
      "--log-every 100 --epochs "
      "100000 --stall-timeout 120");
  Process first(task(0, 2, "--stall-timeout 120", train));
  Process other(task(1, 2, "--stall-timeout 120", train));
  ASSERT_TRUE(first.wait_for(R"("event":"step")"));
  ASSERT_EQ(run(cluster({"cut", "--name", name(), "1"})).status, 0);
  std::this_thread::sleep_for(std::chrono::seconds(35));
  ASSERT_EQ(run(cluster({"mend", "--name", name(), "1"})).status, 0);
  for (int steps = 0; steps < 20; ++steps)
    ASSERT_TRUE(first.wait_for(R"("event":"step")")) << first.finish().errors;
}  // TearDown() ends the job with its hosts, which signals do not reach

}  // namespace
}  // namespace lockstep::inline v0::apps
