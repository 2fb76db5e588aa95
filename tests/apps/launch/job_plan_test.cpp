#include "apps/lockstep/launch/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/lockstep/launch/child.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JoinRequest task_on(const std::string& host, std::vector<int> processors = {}) {
  return {.host = host, .place = host, .processors = std::move(processors)};
}

/// A task that connected from another host than that of rank 0.
JoinRequest task_over(const std::string& interface, const std::string& host,
                      const std::string& towards = "eth0") {
  JoinRequest task = task_on(host);
  task.rank = 1;
  task.interface = interface;
  task.towards = towards;
  return task;
}

std::string line(const JobPlan& plan, const MpirunOptions& options = {.command = {"c"}},
                 const MpirunHere& here = {}, const Runtime& runtime = kOrte) {
  return to_shell(mpirun_command(plan, options, here, runtime));
}

TEST(JobPlan, SupportsOpenMpi5) {
  const JobPlan plan = plan_job_on({"a", "b"});
  EXPECT_EQ(line(plan, {.command = {"c"}, .interface = "eth0"},
                 {.agent = "/p agent", .as_root = true}, kPrrte),
            "mpirun --allow-run-as-root --bind-to none --prtemca plm_ssh_agent '/p agent' "
            "--prtemca plm_ssh_no_tree_spawn 1 --leave-session-attached --prtemca "
            "prte_keep_fqdn_hostnames 1 "
            "--prtemca prte_if_include eth0 --mca btl_tcp_if_include eth0 -np 2 -H a:1,b:1 c");
  EXPECT_EQ(line(plan, {.command = {"c"}, .interface = "lo"}, {}, kPrrte),
            "mpirun --bind-to none --mca btl_tcp_if_include lo -np 2 -H a:1,b:1 c");

  std::vector<JoinRequest> tasks = {task_on("a"), task_on("b"), task_on("a"), task_on("b")};
  EXPECT_EQ(line(plan_job(tasks), {.command = {"c", "d"}, .interface = "any"}, {}, kPrrte),
            "mpirun --bind-to none -np 4 -H a,b,a,b --map-by seq c d");
  tasks[1].gpus = "0";
  tasks[3].gpus = "1,GPU-5";
  EXPECT_EQ(
      line(plan_job(tasks), {.command = {"c"}, .interface = "any"}, {}, kPrrte),
      "mpirun --bind-to none -np 4 -H a,b,a,b --map-by seq sh -c 'case $OMPI_COMM_WORLD_RANK in 1) "
      "export "
      "CUDA_VISIBLE_DEVICES=0;; 3) export CUDA_VISIBLE_DEVICES=1,GPU-5;; esac; exec \"$@\"' sh c");
}

TEST(JobPlan, FillsHostsInRankOrder) {
  const JobPlan plan = plan_job({task_on("a"), task_on("a"), task_on("b"), task_on("b")});
  ASSERT_EQ(plan.hosts.size(), 2U);
  EXPECT_THAT(plan.hosts[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(plan.hosts[1].ranks, ElementsAre(2, 3));
  EXPECT_EQ(line(plan, {.command = {"c", "d e"}, .interface = "any"}),
            "mpirun --bind-to none -np 4 -H a:2,b:2 c 'd e'");
}

TEST(JobPlan, PlacesRanksOnTheirHosts) {
  EXPECT_EQ(line(plan_job_on({"a", "b", "b", "a"})),
            "mpirun --bind-to none -np 1 -H a:2 c : -np 2 -H b:2 c : -np 1 -H a:2 c");
}

TEST(JobPlan, DistinguishesHostsWithSameName) {
  JoinRequest other = task_on("a");
  other.place = "another";
  const JobPlan plan = plan_job({task_on("a"), other});
  ASSERT_EQ(plan.hosts.size(), 2U);
  EXPECT_EQ(plan.hosts[1].name, "a-2");
}

TEST(JobPlan, RenamesOtherHostWithLocalName) {
  const JobPlan plan =
      plan_job({task_on("localhost"), task_over("eth0", "127.0.0.2"), task_on("localhost")});
  ASSERT_EQ(plan.hosts.size(), 2U);
  EXPECT_EQ(plan.hosts[0].name, "localhost");
  EXPECT_EQ(plan.hosts[1].name, "host-of-rank-1");
  EXPECT_EQ(plan_job({task_on("a"), task_over("eth0", "localhost")}).hosts[1].name,
            "host-of-rank-1");
}

TEST(JobPlan, SetsGpusPerRank) {
  std::vector<JoinRequest> tasks = {task_on("a"), task_on("a"), task_on("b"), task_on("b")};
  tasks[0].gpus = "0";
  tasks[1].gpus = "1";
  tasks[2].gpus = tasks[3].gpus = "0,1";
  EXPECT_EQ(line(plan_job(tasks), {.command = {"c"}, .interface = "any"}),
            "mpirun --bind-to none -np 1 -H a:2 -x CUDA_VISIBLE_DEVICES=0 c : -np 1 -H a:2 -x "
            "CUDA_VISIBLE_DEVICES=1 c "
            ": -np 2 -H b:2 c");
}

TEST(JobPlan, CombinesProcessorsOfTasks) {
  const JobPlan plan = plan_job({task_on("a", {0, 1}), task_on("b", {7}), task_on("a", {1, 4})});
  EXPECT_THAT(plan.hosts[0].processors, ElementsAre(0, 1, 4));
  EXPECT_THAT(plan.hosts[1].processors, ElementsAre(7));
}

TEST(JobPlan, RejectsMissingLocalTasks) {
  std::vector<JoinRequest> tasks = {task_on("a"), task_on("b"), task_on("b")};
  tasks[2].rank = 2;
  tasks[2].local_ranks = 3;
  try {
    plan_job(tasks);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(
        error.what(),
        "[launch] expected 3 tasks on host b, the LOCAL_WORLD_SIZE of rank 2, got ranks 1, 2");
  }
}

TEST(MpirunCommand, UsesCommonInterface) {
  const JobPlan plan = plan_job({task_on("a"), task_over("eth0", "b"), task_over("eth0", "c")});
  EXPECT_THAT(line(plan), HasSubstr("--mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0"));
  EXPECT_THAT(line(plan, {.interface = "10.0.0.0/8"}),
              HasSubstr("--mca btl_tcp_if_include 10.0.0.0/8"));
  EXPECT_THAT(line(plan, {.interface = "any"}), ::testing::Not(HasSubstr("if_include")));
}

TEST(MpirunCommand, KeepsChosenInterface) {
  const JobPlan plan = plan_job({task_on("a"), task_over("eth0", "b")});
  const auto without = ::testing::Not(HasSubstr("eth0"));
  EXPECT_THAT(line(plan, {.command = {"c"}, .more = {"--mca", "btl_tcp_if_exclude", "docker0"}}),
              without);
  EXPECT_THAT(line(plan, {.command = {"c"}}, {.on_chosen_networks = true}), without);
  EXPECT_THAT(line(plan, {.command = {"c"}, .interface = "eth1"}, {.on_chosen_networks = true}),
              HasSubstr("eth1"));
}

TEST(MpirunCommand, SetsNoInterfaceWithoutCommonOne) {
  EXPECT_EQ(
      plan_job({task_on("a"), task_over("eth0", "b"), task_over("ib0", "c", "ib0")}).interface, "");
  EXPECT_EQ(plan_job({task_on("a"), task_over("eth0", "b", "eno1")}).interface, "")
      << "rank 0's host has no eth0";
  EXPECT_EQ(plan_job({task_on("a"), task_on("a")}).interface, "");
}

TEST(MpirunCommand, DoesNotBindByDefault) {
  const JobPlan plan = plan_job_on({"a"});
  for (const auto& more : std::vector<std::vector<std::string>>{
           {"--bind-to", "core"}, {"-map-by", "slot:PE=2"}, {"--rankfile", "f"}}) {
    const std::string command = line(plan, {.command = {"c"}, .more = more});
    EXPECT_THAT(command, ::testing::Not(HasSubstr("--bind-to none"))) << command;
    EXPECT_THAT(command, HasSubstr(more[0] + " " + more[1]));
  }
  EXPECT_THAT(line(plan, {.more = {"--display-map"}}), HasSubstr("--bind-to none --display-map"));
}

TEST(MpirunCommand, StartsDaemonsThroughAgentWithoutSlurm) {
  const MpirunHere here{.agent = "/x/lockstep launch-agent", .as_root = true, .within_slurm = true};
  const std::string two = line(plan_job_on({"a", "b"}), {.command = {"c"}}, here);
  for (const char* part : {"mpirun --allow-run-as-root ", "--mca ras ^slurm --mca plm ^slurm",
                           "--mca plm_rsh_agent '/x/lockstep launch-agent' --mca plm_rsh_args ''",
                           "--mca plm_rsh_no_tree_spawn 1"})
    EXPECT_THAT(two, HasSubstr(part));
  EXPECT_THAT(line(plan_job_on({"a"}), {.command = {"c"}}, here),
              ::testing::Not(HasSubstr("agent")));
}

TEST(ToShell, QuotesSpecialCharacters) {
  EXPECT_EQ(to_shell({"a-b=1", "", "x y", "it's", "$HOME", "*"}),
            R"(a-b=1 '' 'x y' 'it'\''s' '$HOME' '*')");
}

TEST(Ending, RoundTrips) {
  const Ending sent{.status = 4, .message = "[launch] expected \"x\", got y"};
  EXPECT_EQ(parse_ending(to_text(sent)), sent);
}

TEST(TaskVariables, AreNotInherited) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "TF_CONFIG", "SLURM_PROCID", "SLURM_STEP_NODELIST", "PMI_RANK",
        "PMIX_RANK", "LOCKSTEP_JOB_SECRET", "LOCKSTEP_JOB_SECRET_FILE"})
    EXPECT_TRUE(identifies_task(name)) << name;
  for (const char* name :
       {"PATH", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "MASTER_ADDR", "RANKS", "MY_RANK"})
    EXPECT_FALSE(identifies_task(name)) << name;
}

}  // namespace
}  // namespace lockstep::inline v0::apps::launch
