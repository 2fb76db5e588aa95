// lockstep launch across hosts that have a network, a name and memory of their own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/cluster/hosts.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LaunchOnHosts : public HostsTest {
 protected:
  static void stand(int hosts) {
    ASSERT_EQ(run(cluster({"up", "--name", name(), "--hosts", std::to_string(hosts)})).status, 0);
  }
  /// A task of a job of one task a host, on its host, with TF_CONFIG; `command` is what it launches.
  static Words task(int rank, int hosts, const std::string& options, const Words& command) {
    std::string workers;
    for (int host = 0; host < hosts; ++host) workers += fmt::format(R"({}"node{}:2222")", host == 0 ? "" : ",", host);
    Words words =
        cluster({"exec", "--name", name(), std::to_string(rank), "--", "env",
                 fmt::format(R"(TF_CONFIG={{"cluster":{{"worker":[{}]}},"task":{{"type":"worker","index":{}}}}})",
                             workers, rank)});
    for (const std::string& word : lockstep("launch " + options)) words.push_back(word);
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  /// All tasks of such a job, the first of them first.
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
  stand(3);
  const auto results = job(3, "", lockstep("train --model mlp --data synthetic:8x8x1:4:512 --log-format json"));
  for (const Result& result : results) ASSERT_EQ(result.status, 0) << result.errors;
  const auto start = results[0].event("start");
  EXPECT_EQ(start["nodes"], 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(start["devices"][rank]["host"], fmt::format("node{}", rank));
    EXPECT_EQ(start["devices"][rank]["interface"], "eth0");
  }
  EXPECT_EQ(results[0].event("end")["steps"], 8);
}

TEST_F(LaunchOnHosts, TrainsWhereHostsCallTheirInterfacesDifferently) {
  stand(2);
  const std::string change = "ip link set eth0 down && ip link set eth0 name eno1 && ip link set eno1 up";
  ASSERT_EQ(on(0, {"sh", "-c", change}).status, 0);
  const auto results = job(2, "", lockstep("train --model mlp --data synthetic:8x8x1:4:512 --log-format json"));
  for (const Result& result : results) ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(results[0].event("start")["devices"][0]["interface"], "eno1");
  EXPECT_EQ(results[0].event("start")["devices"][1]["interface"], "eth0");
}

TEST_F(LaunchOnHosts, NamesAHostThatCannotBeReached) {
  stand(2);
  ASSERT_EQ(run(cluster({"cut", "--name", name(), "1"})).status, 0);
  const auto results = job(2, "--timeout 3", {"true"});
  EXPECT_EQ(results[0].status, 4);
  EXPECT_THAT(results[0].errors,
              HasSubstr("needed all 2 tasks at port 2222 of host node0 within 3 s; 1 came; no word of "
                        "rank 1 (worker:1) of host node1"));
  EXPECT_EQ(results[1].status, 4);
  EXPECT_THAT(results[1].errors,
              AllOf(HasSubstr("needed the task of rank 0 at node0:2222 within 3 s; from host node1 by "),
                    HasSubstr(" to 10.77.0.1: ")));
}

TEST_F(LaunchOnHosts, NamesThePairOfHostsThatDoNotReachEachOther) {
  stand(3);
  ASSERT_EQ(on(1, {"ip", "route", "add", "unreachable", "10.77.0.3/32"}).status, 0);
  const auto results = job(3, "", {"true"});
  for (const Result& result : results) {
    EXPECT_EQ(result.status, 4);
    EXPECT_THAT(result.errors,
                AllOf(HasSubstr("[launch] needed hosts that reach each other; "),
                      HasSubstr("host node1 does not reach node2 at 10.77.0.3 by no interface: No route to host"),
                      HasSubstr("host node2 does not reach node1 at 10.77.0.2 by eth0: Connection timed out")));
  }
}

}  // namespace
}  // namespace lockstep::apps
