// scripts/cluster: several hosts on one machine, and the program across them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cluster/hosts.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTrain =
    "train --model mlp --epochs 1 --data synthetic:8x8x1,4,512 --global-batch 64 --log-format json "
    "--log-every 1 ";

class Hosts : public HostsTest {};

TEST_F(Hosts, TrainToTheLossesOfOneProcess) {
  const Result one = run_lockstep(kTrain + "--devices cpu:0");
  const Result three = run(cluster({"run", "--hosts", "3", "--name", name()}, kTrain));
  ASSERT_EQ(three.status, 0) << three.errors;
  EXPECT_EQ(three.event("start")["nodes"], 3);
  EXPECT_EQ(three.event("start")["ranks"], 3);
  const std::vector<double> expected = one.losses();
  const std::vector<double> losses = three.losses();
  ASSERT_EQ(expected.size(), 8U);
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * std::abs(expected[i])) << "step " << i + 1;
  EXPECT_FALSE(is_running());
}

// A loop in C in sessions in turn, on all ranks, on every second one and in a group.
TEST_F(Hosts, RunProgramsThatOwnMpi) {
  Words words = cluster({"run", "--hosts", "2", "--ranks-per-host", "2", "--name", name(), "--"});
  words.emplace_back(LOCKSTEP_EMBEDDED_LOOP);
  const Result result = run(words);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("embedded_loop: right on 4 ranks"));
}

TEST_F(Hosts, GroupTheirRanks) {
  const Result result =
      run(cluster({"run", "--hosts", "2", "--ranks-per-host", "2"},
                  "train --model linear --epochs 1 --data synthetic:8x8x1,4,64 --verbose"));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      ContainsRegex("\n +0 +0 +node0 .*\n +1 +1 +node0 .*\n +2 +2 +node1 .*\n +3 +3 +node1 "));
}

TEST_F(Hosts, SelectTheFastestRouteAndReuseIt) {
  const std::filesystem::path directory = std::filesystem::temp_directory_path() / name();
  const auto train = [&](int steps) {
    return run(cluster(
        {"run", "--hosts", "2", "--ranks-per-host", "2"},
        fmt::format("{} --steps {} --checkpoint-dir {}", kTrain, steps, directory.string())));
  };
  const Result first = train(4);
  const Result second = train(8);
  std::filesystem::remove_all(directory);
  ASSERT_EQ(first.status, 0) << first.errors;
  ASSERT_EQ(second.status, 0) << second.errors;
  const std::string route = first.event("start")["allreduce"];
  EXPECT_THAT(
      std::string(first.event("start")["allreduce_reason"]),
      ContainsRegex(
          "4 ranks on 2 nodes; [0-9]+ KiB take [0-9.]+ ms by hierarchical, [0-9.]+ ms by ring"));
  EXPECT_EQ(second.event("start")["allreduce"], route);
  EXPECT_EQ(second.event("start")["allreduce_reason"],
            "4 ranks on 2 nodes, as in the run that is resumed");
}

TEST_F(Hosts, SumOnEveryRoute) {
  const Result result = run(cluster(
      {"run", "--hosts", "2", "--ranks-per-host", "2"},
      "allreduce-bench --min-bytes 1 --max-bytes 1MiB --factor 1000 --iterations 1 --check --json "
      "--allreduce auto,hierarchical,ring,mpi"));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.events().size(), 12U);
  for (const auto& row : result.events()) {
    EXPECT_EQ(row["errors"], 0) << row;
    EXPECT_EQ(row["world_size"], 4);
    EXPECT_EQ(row["nodes"], 2);
  }
}

TEST_F(Hosts, ReturnTheStatusOfTheCommandAndCleanUp) {
  EXPECT_EQ(run(cluster({"run", "--name", name(), "--", "sh", "-c", "exit 7"})).status, 7);
  EXPECT_FALSE(is_running());
  const Result refused =
      run(cluster({"run", "--name", name(), "--hosts", "2"}, "train --model nothing"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("lockstep: error: "));
}

TEST_F(Hosts, RunProcessesAsTheUserWhoCalledSudo) {
  Words command = cluster(
      {"run", "--name", name(), "--hosts", "2", "--", "sh", "-c", "id -u; id -G; uname -n"});
  command.insert(command.begin(), {"env", "-C", "/", "SUDO_UID=65534", "SUDO_GID=65534"});
  const Result result = run(command);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.output.find("\n0\n"), std::string::npos) << result.output;
  for (const char* part : {"65534\n65534\n", "node0\n", "node1\n"})
    EXPECT_THAT(result.output, HasSubstr(part));
  EXPECT_FALSE(is_running());
}

TEST_F(Hosts, HaveSeparateNamesNetworksAndSharedMemory) {
  ASSERT_EQ(
      run(cluster({"up", "--name", name(), "--hosts", "2", "--rate", "200mbit", "--burst", "64kb"}))
          .status,
      0);
  EXPECT_EQ(on(1, {"cat", "/proc/sys/kernel/hostname"}).output, "node1\n");
  EXPECT_EQ(on(0, {"getent", "ahostsv4", "node1"}).status, 0);
  EXPECT_THAT(on(1, {"tc", "qdisc", "show", "dev", "eth0"}).output,
              HasSubstr("rate 200Mbit burst 64Kb lat 5ms"));
  EXPECT_EQ(on(0, {"touch", "/dev/shm/mine"}).status, 0);
  EXPECT_EQ(on(0, {"ls", "/dev/shm"}).output, "mine\n");
  EXPECT_EQ(on(1, {"ls", "/dev/shm"}).output, "");
  EXPECT_EQ(on(1, {"pwd"}).output, std::filesystem::current_path().string() + "\n");
}

TEST_F(Hosts, LoseTheirNetworkWhileDisconnected) {
  ASSERT_EQ(run(cluster({"up", "--name", name(), "--hosts", "2"})).status, 0);
  const auto link = [](int host) { return on(host, {"ip", "link", "show", "eth0"}).output; };
  EXPECT_EQ(run(cluster({"cut", "--name", name(), "node1"})).status, 0);
  EXPECT_THAT(link(1), HasSubstr("NO-CARRIER"));
  EXPECT_THAT(link(0), Not(HasSubstr("NO-CARRIER")));
  EXPECT_EQ(run(cluster({"mend", "--name", name(), "1"})).status, 0);
  EXPECT_THAT(link(1), Not(HasSubstr("NO-CARRIER")));
  EXPECT_THAT(on(1, {"tc", "qdisc", "show", "dev", "eth0"}).output, HasSubstr("rate 1Gbit"));
}

TEST_F(Hosts, RunSeveralJobs) {
  ASSERT_EQ(run(cluster({"up", "--name", name(), "--hosts", "2"})).status, 0);
  for (int job = 0; job < 2; ++job) {
    const Result result = run(cluster({"run", "--name", name()}, kTrain + "--steps 2"));
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(result.event("start")["nodes"], 2);
  }
  EXPECT_TRUE(is_running());
  EXPECT_THAT(
      run(cluster({"run", "--name", name(), "--hosts", "3"}, kTrain)).errors,
      HasSubstr("is already running, with 2 hosts, 1gbit each way; --hosts cannot change it"));
  EXPECT_THAT(run(cluster({"up", "--name", name()})).errors,
              HasSubstr("expected an unused name, got "));
  EXPECT_TRUE(is_running());
  EXPECT_EQ(run(cluster({"down", "--name", name()})).status, 0);
  EXPECT_FALSE(is_running());
}

TEST_F(Hosts, AreIsolatedBetweenClusters) {
  Process other(cluster({"run", "--name", name()}, kTrain + "--epochs 100000"));
  ASSERT_TRUE(other.wait_for(R"("event":"step","step":5)"));
  const Result result = run(cluster({"run", "--name", name() + "-too"}, kTrain));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(is_running());
  other.kill(SIGTERM);
  EXPECT_EQ(other.finish().status, 128 + SIGTERM);
}

/// The ranks among all descendants of `process`.
std::vector<pid_t> ranks_under(const Process& process) {
  std::vector<pid_t> ranks = process.descendants();
  std::erase_if(ranks, [](pid_t id) {
    std::error_code ended;
    return std::filesystem::read_symlink(fmt::format("/proc/{}/exe", id), ended) !=
           LOCKSTEP_PROGRAM;
  });
  return ranks;
}

class EndOfARun : public Hosts, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, EndOfARun, ::testing::Values(SIGTERM, SIGINT, SIGKILL));

TEST_P(EndOfARun, EndsItsRanks) {
  Process process(cluster({"run", "--name", name(), "--hosts", "3"}, kTrain + "--epochs 100000"));
  ASSERT_TRUE(process.wait_for(R"("event":"step","step":5)"));
  const std::vector<pid_t> ranks = ranks_under(process);
  ASSERT_EQ(ranks.size(), 3U);
  const Watched first(ranks[0]);
  const Watched second(ranks[1]);
  const Watched third(ranks[2]);
  ::kill(ranks[1], SIGSTOP);  // a stopped rank must end too
  process.kill(GetParam());
  EXPECT_EQ(process.finish().status, 128 + GetParam());
  for (const Watched* rank : {&first, &second, &third}) EXPECT_TRUE(rank->ends_within(15));
  if (GetParam() == SIGKILL) {
    EXPECT_THAT(run(cluster({"list"})).output,
                ContainsRegex(name() + " +dead; remove the rest with scripts/cluster clean"));
    EXPECT_EQ(run(cluster({"clean"})).status, 0);
  }
  EXPECT_FALSE(is_running());
}

struct Refusal {
  std::string arguments;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
  return out << refusal.arguments;
}

class ClusterScript : public ::testing::TestWithParam<Refusal> {};

TEST_P(ClusterScript, RejectsUnknownArguments) {
  std::istringstream stream(GetParam().arguments);
  const Result result = run(cluster(Words(std::istream_iterator<std::string>(stream), {})));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("scripts/cluster: error: " + GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Arguments, ClusterScript,
    ::testing::Values(
        Refusal{"", "expected run, up, exec, cut, mend, down, list or clean;"},
        Refusal{"start", "expected run, up, exec, cut, mend, down, list or clean, got 'start'"},
        Refusal{"run", "run needs -- and a command"}, Refusal{"up", "up needs --name NAME"},
        Refusal{"down", "down needs --name NAME"}, Refusal{"exec --name x", "exec needs a host"},
        Refusal{"cut --name x", "cut needs one host"},
        Refusal{"run --speed 1 -- true", "unknown option '--speed'"},
        Refusal{"run --hosts 0 -- true", "--hosts: expected a whole number above 0, got '0'"},
        Refusal{"run --hosts 65 -- true", "--hosts: expected at most 64, got 65"},
        Refusal{"run --ranks-per-host x -- true",
                "--ranks-per-host: expected a whole number above 0"},
        Refusal{"run --rate 1gb -- true",
                "--rate: expected bits per second, such as 1gbit, or none, got '1gb'"},
        Refusal{"run --burst big -- true", "--burst: expected bytes, such as 1mb, got 'big'"},
        Refusal{"run --latency 5 -- true", "--latency: expected a time, such as 5ms, got '5'"},
        Refusal{"run --name ../x -- true",
                "--name: expected letters, digits, '-' and '_', got '../x'"}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(ClusterScriptWithoutRoot, ReportsThatItRequiresRoot) {
  // If root runs the tests, as user nobody of a user namespace.
  Words command = cluster({"run", "--", "true"});
  if (geteuid() == 0) {
    command.insert(command.begin(), {"unshare", "--user", "--"});
    if (run({"unshare", "--user", "--", "true"}).status != 0)
      GTEST_SKIP() << "no user namespaces here";
  }
  const Result result = run(command);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors,
              HasSubstr("needs root for network namespaces; try: sudo scripts/cluster run"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
