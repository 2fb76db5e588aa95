#include "lockstep/job/launch/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "tests/job/refusal.h"

namespace lockstep::inline v0::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Task task_in(const Variables& variables) { return find_task(environment_of(variables)).value(); }

std::string refusal_in(const Variables& variables) {
  return refusal([&] { find_task(environment_of(variables)); });
}

const Variables kTorchrun = {{"RANK", "3"},        {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
const Variables kWorker1 = {
    {"TF_CONFIG",
     R"({"cluster": {"worker": ["a.b:2222", "[::1]:2223"]}, "task": {"type": "worker", "index": 1}})"}};
const Variables kStep = {{"SLURM_JOB_ID", "123456"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_STEP_NUM_TASKS", "5"},
                         {"SLURM_STEP_NODELIST", "node[01-02],gpu7"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(FindTask, FindsNoneInAnEmptyEnvironment) {
  EXPECT_FALSE(find_task(environment_of({})).has_value());
  EXPECT_FALSE(find_task(environment_of({{"WORLD_SIZE", "4"}})).has_value())
      << "one of the two is not enough";
  EXPECT_FALSE(find_task(environment_of({{"TF_CONFIG", "{}"}})).has_value());
  EXPECT_FALSE(
      find_task(environment_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})).has_value())
      << "a batch script";
}

TEST(FindTask, ReadsPlainVariables) {
  const Task task = task_in(kTorchrun);
  EXPECT_EQ(task.source, "RANK and WORLD_SIZE");
  EXPECT_EQ(task.rank, 3);
  EXPECT_EQ(task.ranks, 4);
  EXPECT_EQ(task.local_ranks, 2);
  EXPECT_EQ(task.rendezvous.host, "a");
  EXPECT_EQ(task.rendezvous.port, 29500);
  EXPECT_THAT(task.hosts, IsEmpty());
  EXPECT_EQ(task.job, task_in(with(kTorchrun, "RANK", "0")).job);
}

TEST(FindTask, KnowsTheHostOfTasksOnOneHost) {
  EXPECT_THAT(task_in(with(with(kTorchrun, "LOCAL_WORLD_SIZE", "4"), "LOCAL_RANK", "3")).hosts,
              ElementsAre("a", "a", "a", "a"));
}

TEST(FindTask, ReadsTfConfig) {
  const Task task = task_in(kWorker1);
  EXPECT_EQ(task.source, "TF_CONFIG");
  EXPECT_THAT(task.names, ElementsAre("worker:0", "worker:1"));
  EXPECT_EQ(task.rank, 1);
  EXPECT_EQ(task.ranks, 2);
  EXPECT_EQ(task.rendezvous.host, "a.b");
  EXPECT_EQ(task.rendezvous.port, 2222);
  EXPECT_THAT(task.hosts, ElementsAre("a.b", "::1"));
}

TEST(FindTask, UsesTheChiefAsRendezvous) {
  const Task task = task_in(
      {{"TF_CONFIG",
        R"({"cluster": {"worker": ["a:1", "b:1"], "chief": ["c:7"]}, "task": {"type": "worker", "index": 0}})"}});
  EXPECT_EQ(task.rendezvous.host, "c");
  EXPECT_EQ(task.rendezvous.port, 7);
  EXPECT_THAT(task.hosts, ElementsAre("c", "a", "b"));
  EXPECT_THAT(task.names, ElementsAre("chief:0", "worker:0", "worker:1"));
}

TEST(FindTask, TreatsAnEvaluatorAsASeparateJob) {
  const Task task = task_in(
      {{"TF_CONFIG",
        R"({"cluster": {"worker": ["a:1", "b:1"], "evaluator": ["e:1"]}, "task": {"type": "evaluator", "index": 0}})"}});
  EXPECT_EQ(task.rank, 0);
  EXPECT_EQ(task.ranks, 1);
  EXPECT_THAT(task.hosts, ElementsAre("e"));
  EXPECT_THAT(task.names, ElementsAre("evaluator:0"));
}

TEST(FindTask, ReadsAStepOfSrun) {
  const Task task = task_in(kStep);
  EXPECT_EQ(task.source, "srun");
  EXPECT_EQ(task.rank, 2);
  EXPECT_EQ(task.ranks, 5);
  EXPECT_EQ(task.rendezvous.host, "node01");
  EXPECT_EQ(task.rendezvous.port, 15000 + 123456 % 15000);
  EXPECT_EQ(task.job, "123456.0");
  EXPECT_THAT(task.hosts, ElementsAre("node01", "node01", "node02", "node02", "gpu7"));
  EXPECT_THAT(task_in(with(kStep, "SLURM_DISTRIBUTION", "cyclic")).hosts, IsEmpty());
}

TEST(FindTask, PrefersPlainVariablesToTfConfigToSlurm) {
  Variables all = kStep;
  all.insert(kWorker1.begin(), kWorker1.end());
  EXPECT_EQ(task_in(all).source, "TF_CONFIG");
  all.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(task_in(all).source, "RANK and WORLD_SIZE");
}

TEST(FindTask, RejectsInvalidNumbers) {
  const std::vector<std::tuple<std::string, std::string, std::string>> wrong = {
      {"RANK", "4", "[launch] expected a number from 0 to 3 in RANK, got \"4\""},
      {"RANK", "-1", "[launch] expected a number from 0 to 3 in RANK, got \"-1\""},
      {"RANK", "one", "[launch] expected a number from 0 to 3 in RANK, got \"one\""},
      {"WORLD_SIZE", "0", "[launch] expected a number from 1 to 1000000 in WORLD_SIZE, got \"0\""},
      {"WORLD_SIZE", "2147483647",
       "[launch] expected a number from 1 to 1000000 in WORLD_SIZE, got \"2147483647\""},
      {"WORLD_SIZE", "4 ",
       "[launch] expected a number from 1 to 1000000 in WORLD_SIZE, got \"4 \""},
      {"LOCAL_RANK", "2", "[launch] expected a number from 0 to 1 in LOCAL_RANK, got \"2\""},
      {"LOCAL_WORLD_SIZE", "5",
       "[launch] expected a number from 1 to 4 in LOCAL_WORLD_SIZE, got \"5\""},
      {"MASTER_PORT", "65536",
       "[launch] expected a number from 1 to 65535 in MASTER_PORT, got \"65536\""}};
  for (const auto& [name, value, message] : wrong)
    EXPECT_EQ(refusal_in(with(kTorchrun, name, value)), message);
  EXPECT_EQ(refusal_in(with(kStep, "SLURM_PROCID", "5")),
            "[launch] expected a number from 0 to 4 in SLURM_PROCID, got \"5\"");
}

TEST(FindTask, RejectsParameterServersAndInvalidAddresses) {
  EXPECT_THAT(
      refusal_in(
          {{"TF_CONFIG",
            R"({"cluster": {"worker": ["a:1"], "ps": ["p:1"]}, "task": {"type": "ps", "index": 0}})"}}),
      HasSubstr("[TF_CONFIG] expected a chief, worker or evaluator"));
  EXPECT_EQ(
      refusal_in(
          {{"TF_CONFIG",
            R"({"cluster": {"worker": ["a:1", "b:x"]}, "task": {"type": "worker", "index": 0}})"}}),
      "[TF_CONFIG] expected an address \"host:port\", got \"b:x\"");
}

TEST(ParseAddress, AcceptsNamesAndAddresses) {
  for (const auto& [address, host, port] :
       std::vector<std::tuple<std::string, std::string, int>>{{"a:1", "a", 1},
                                                              {"a", "a", 0},
                                                              {"10.0.0.1:65535", "10.0.0.1", 65535},
                                                              {"[fe80::1]:2", "fe80::1", 2},
                                                              {"[::1]", "::1", 0}}) {
    const Endpoint point = parse_address("x", address);
    EXPECT_EQ(point.host, host);
    EXPECT_EQ(point.port, port);
  }
}

TEST(ParseAddress, RejectsInvalidAddresses) {
  for (const char* address : {"", ":1", "a:", "a:0", "a:65536", "a:-1", "a:1x", "a b:1",
                              "http://a:1", "[::1", "[::1]:", "[::1]2", "a\nb:1", "a\x7f:1"})
    EXPECT_THAT(refusal([&] { parse_address("x", address); }),
                HasSubstr("[x] expected an address \"host:port\", got "))
        << address;
}

TEST(RequireNoTask, RejectsOneOfSeveralTasks) {
  EXPECT_EQ(refusal([] { require_no_task(environment_of(kTorchrun)); }),
            "[session] expected the 4 tasks of RANK and WORLD_SIZE in one job: use "
            "--transport tcp (LOCKSTEP_TRANSPORT=tcp), or start all of them with one mpirun; task "
            "3 is a separate job and would train alone");
  EXPECT_THAT(refusal([] { require_no_task(environment_of(kWorker1)); }),
              HasSubstr("the 2 tasks of TF_CONFIG"));
  EXPECT_THAT(refusal([] { require_no_task(environment_of(kStep)); }),
              HasSubstr("the 5 tasks of srun"));
}

TEST(RequireNoTask, AcceptsASingleTask) {
  EXPECT_NO_THROW(require_no_task(environment_of({})));
  EXPECT_NO_THROW(require_no_task(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
  EXPECT_NO_THROW(require_no_task(environment_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}})))
      << "a batch script";
}

TEST(SlurmList, ExpandsHosts) {
  EXPECT_THAT(expand_slurm_hosts("a"), ElementsAre("a"));
  EXPECT_THAT(expand_slurm_hosts("node[08-10,3],gpu1"),
              ElementsAre("node08", "node09", "node10", "node3", "gpu1"));
  EXPECT_THAT(expand_slurm_hosts("r[1-2]n[1-2]-ib"),
              ElementsAre("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"));
  for (const char* list :
       {"", "a,", "a[1", "a]1", "a[2-1]", "a[x]", "a[1-]", "a[[1]]", "a[1-999999]"})
    EXPECT_THAT(refusal([&] { expand_slurm_hosts(list); }),
                HasSubstr("[launch] expected a Slurm host list such as "))
        << list;
}

// Brackets multiply: each of these lists is short, but its expansion would exhaust the memory or
// the stack.
TEST(SlurmList, RejectsTooManyHosts) {
  std::string many;
  for (int i = 0; i < 100; ++i) many += "a[0-65535],";
  std::string deep;
  for (int i = 0; i < 50000; ++i) deep += "[1]";
  for (const std::string& list :
       {std::string("n[0-65535][0-65535]"), many + "b", deep,
        "n[" + std::string(100000, '0') + "1-9]", std::string(100000, 'x'),
        std::string("n[0-65536]"), std::string(200, 'x') + "[0-65535]"})
    EXPECT_THAT(refusal([&] { expand_slurm_hosts(list); }),
                HasSubstr("[launch] expected a Slurm host list such as "))
        << list.substr(0, 40);
  EXPECT_EQ(expand_slurm_hosts("n[0-65535]").size(), 65536U);
  EXPECT_THAT(refusal([] { expand_slurm_counts("1(x65536),1(x65536)"); }),
              HasSubstr("[launch] expected a Slurm list of counts"));
}

TEST(SlurmList, ExpandsCounts) {
  EXPECT_THAT(expand_slurm_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_slurm_counts("4"), ElementsAre(4));
  for (const char* list : {"", "x", "2(x", "2(x)", "2(x3", "1,,2", "-1"})
    EXPECT_THAT(refusal([&] { expand_slurm_counts(list); }),
                HasSubstr("[launch] expected a Slurm list of counts such as "))
        << list;
}

}  // namespace
}  // namespace lockstep::inline v0::job
