// lockstep launch with separate task processes, on one host and on simulated hosts that differ only
// in name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "apps/lockstep/launch/job_plan.h"
#include "lockstep/base/system/host.h"
#include "tests/apps/launch/launch_fixture.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Words kTrain = {"train",
                      "--model",
                      "mlp",
                      "--data",
                      "synthetic:8x8x1,4,512",
                      "--global-batch",
                      "64",
                      "--log-format",
                      "json",
                      "--log-every",
                      "1",
                      "--checkpoint-dir",
                      "none"};

TEST_F(LaunchTest, TrainsAsMpirunDoes) {
  const Result one = run(program(kTrain));
  Process other(task(1, {}, program(kTrain)));
  const Result first = run(task(0, {}, program(kTrain)));
  const Result second = other.finish();
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(second.output, "");
  EXPECT_EQ(first.event("start")["ranks"], 2);
  EXPECT_EQ(first.event("start")["nodes"], 1);
  const std::vector<double> losses = first.losses();
  ASSERT_EQ(losses.size(), 8U);
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], one.losses()[i], 1e-5);
}

/// mpirun treats two names of this machine as two hosts, but MPI_Comm_split_type of Open MPI 5 as
/// one, and fails. The hosts of scripts/cluster are not affected.
bool mpi_merges_hosts() { return launch::runtime_here().is_prrte; }

TEST_F(LaunchTest, TrainsOnTwoHosts) {
  if (mpi_merges_hosts())
    GTEST_SKIP() << "Open MPI 5 sees one host; LaunchOnHosts.TrainsAsOneJob has two";
  Process other(task_elsewhere(1, {}, program(kTrain)));
  const Result first = run(task_elsewhere(0, {}, program(kTrain)));
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(other.finish().status, 0);
  EXPECT_EQ(first.event("start")["nodes"], 2);
  EXPECT_EQ(first.event("start")["devices"][1]["interface"], "lo");
}

TEST_F(LaunchTest, ReturnsCommandStatusOnAllTasks) {
  for (const bool elsewhere : {false, true}) {
    const auto line = [&](int rank) {
      return elsewhere ? task_elsewhere(rank, {}, shell("exit 7"))
                       : task(rank, {}, shell("exit 7"));
    };
    Process other(line(1));
    EXPECT_EQ(run(line(0)).status, 7);
    EXPECT_EQ(other.finish().status, 7);
  }
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, HidesTaskVariablesFromRanks) {
  const Words command =
      shell("echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE:$RANK$WORLD_SIZE$TF_CONFIG");
  Process other(task_elsewhere(1, {}, command));
  EXPECT_THAT(run(task_elsewhere(0, {}, command)).output,
              AllOf(HasSubstr("0 of 2:\n"), HasSubstr("1 of 2:\n")));
  other.finish();
}

TEST_F(LaunchTest, KeepsNetworksButNotSshArgumentsOfEnvironment) {
  const Words command = shell("echo by ${OMPI_MCA_btl_tcp_if_include:-any}");
  const auto line = [&](int rank) {
    Words words = task_elsewhere(rank, {}, command);
    words.insert(words.begin() + 1,
                 {"OMPI_MCA_btl_tcp_if_exclude=docker9", "OMPI_MCA_plm_rsh_args=-p 2222",
                  "PRTE_MCA_plm_ssh_args=-p 2222"});
    return words;
  };
  Process other(line(1));
  EXPECT_EQ(run(line(0)).output, "by any\nby any\n");
  EXPECT_EQ(other.finish().status, 0);
}

TEST_F(LaunchTest, RunsFromFolderWithSpace) {
  const ScratchDirectory directory;
  const std::filesystem::path program = directory.path() / "a b" / "lockstep";
  std::filesystem::create_directories(program.parent_path());
  std::filesystem::copy_file(LOCKSTEP_PROGRAM, program);
  const auto line = [&](int rank) {
    Words words = task_elsewhere(rank, {"--timeout", "10"}, shell("true"));
    std::ranges::replace(words, std::string(LOCKSTEP_PROGRAM), program.string());
    return words;
  };
  Process other(line(1));
  const Result first = run(line(0));
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(other.finish().status, 0);
}

TEST_F(LaunchTest, RendezvousOptionOverridesEnvironment) {
  const auto line = [&](int rank) {
    return Words{"env",
                 fmt::format("RANK={}", rank),
                 "WORLD_SIZE=2",
                 "MASTER_ADDR=127.0.0.1",
                 "MASTER_PORT=1",
                 LOCKSTEP_PROGRAM,
                 "launch",
                 "--rendezvous",
                 fmt::format(":{}", port_),
                 "--",
                 "true"};
  };
  Process other(line(1));
  EXPECT_EQ(run(line(0)).status, 0);
  EXPECT_EQ(other.finish().status, 0);
  const Result elsewhere = run(task(1, {"--rendezvous", "127.0.0.2", "--timeout", "1"}, {"true"}));
  EXPECT_THAT(elsewhere.errors,
              HasSubstr(fmt::format("expected to connect to rank 0 at 127.0.0.2:{} ", port_)));
}

TEST_F(LaunchTest, ListsMissingTasks) {
  Process other(task(2, {"--timeout", "20"}, shell("true"), 3));
  const Result first = run(task(0, {"--timeout", "2"}, shell("true"), 3));
  const std::string message = fmt::format(
      "lockstep: error: [launch] expected all 3 tasks to connect to port {} of host {} within 2 s; "
      "2 connected, "
      "missing rank 1\n",
      port_, host_name());
  EXPECT_EQ(first.status, 4);
  EXPECT_EQ(first.errors, message);
  const Result second = other.finish();
  EXPECT_EQ(second.status, 4);
  EXPECT_EQ(second.errors, message);
}

TEST_F(LaunchTest, ReportsHostsAddressAndInterfaceWithoutFirstTask) {
  const Result result = run(task(1, {"--timeout", "1"}, shell("true")));
  EXPECT_EQ(result.status, 4);
  EXPECT_EQ(
      result.errors,
      fmt::format(
          "lockstep: error: [launch] expected to connect to rank 0 at 127.0.0.1:{} within 1 s; "
          "from host {} by lo (127.0.0.1) to 127.0.0.1: Connection refused\n",
          port_, host_name()));
}

TEST_F(LaunchTest, FailsIfMpirunIsStopped) {
  Process first(task(0, {"--stall-timeout", "2"}, shell("echo ready; sleep 1000"), 1));
  ASSERT_TRUE(first.wait_for("ready"));
  const std::vector<pid_t> children = first.children();
  ASSERT_EQ(children.size(), 1U);
  ::kill(children.front(), SIGSTOP);
  const Result result = first.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(
      result.errors,
      AllOf(HasSubstr(fmt::format("[launch] mpirun is stopped (process {0} on host {1}): `kill "
                                  "-CONT {0}` continues it; otherwise the job ends after 2 s",
                                  children.front(), host_name())),
            HasSubstr(fmt::format("lockstep: error: [launch] expected mpirun to run; its process "
                                  "{} on host {} was stopped for ",
                                  children.front(), host_name()))));
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, ReportsErrorsOfSingleSrunTask) {
  const Result result =
      run({"env", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", LOCKSTEP_PROGRAM, "launch",
           "--rendezvous", fmt::format("127.0.0.1:{}", port_), "--timeout", "1", "--", "true"});
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("[launch] expected to connect to rank 0 at 127.0.0.1:"));
}

TEST_F(LaunchTest, RejectsContradictoryTasks) {
  Process other(task(1, {}, shell("true"), 3));
  const Result first = run(task(0, {}, shell("true"), 2));
  EXPECT_EQ(first.status, 2);
  EXPECT_THAT(
      first.errors,
      HasSubstr("[launch] expected the same number of tasks in the environment of every task; "
                "rank 0 on host "));
  const Result second = other.finish();
  EXPECT_EQ(second.status, 2);
  EXPECT_EQ(second.errors, first.errors);
}

TEST_F(LaunchTest, IgnoresImpossibleTasks) {
  const Process first(task(0, {}, shell("true")));
  net::Connection stranger = join({.rank = 2, .ranks = 2, .host = "b", .place = "b"});
  EXPECT_FALSE(receives(stranger, launch::FrameKind::welcome));
  EXPECT_FALSE(stranger.is_open());
}

TEST_F(LaunchTest, NamesTaskWithInvalidReply) {
  Process first(task(0, {}, shell("true")));
  net::Connection stranger = join({.rank = 1, .ranks = 2, .host = "b", .place = "b"});
  ASSERT_TRUE(receives(stranger, launch::FrameKind::probe));
  stranger.send({launch::FrameKind::probed, "[1"});
  const Result result = first.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("lost rank 1 on host b: it sent an invalid message"));
}

TEST_F(LaunchTest, RejectsTaskOfAnotherJob) {
  Process first(task(0, {"--job", "mine", "--timeout", "10"}, shell("true")));
  const Result stranger = run(task(1, {"--job", "yours"}, shell("true")));
  EXPECT_EQ(stranger.status, 2);
  EXPECT_THAT(
      stranger.errors,
      HasSubstr("[launch] expected a task of the job \"mine\", to which the task at this address "
                "belongs; this task belongs to the job \"yours\""));
  EXPECT_EQ(run(task(1, {"--job", "mine"}, shell("true"))).status, 0);
  EXPECT_EQ(first.finish().status, 0);
}

TEST_F(LaunchTest, RejectsPortInUse) {
  const net::Listener taken(port_);
  const Result result = run(task(0, {}, shell("true")));
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(
      result.errors,
      HasSubstr(fmt::format("expected TCP port {} to listen on; Address already in use", port_)));
}

TEST_F(LaunchTest, RejectsUseUnderMpirun) {
  const Result result = run(mpirun(1, "launch -- true"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("[launch] expected a process that was not started by an MPI "
                                       "launcher; mpirun started it as "
                                       "rank 0: remove `lockstep launch --`"));
}

TEST_F(LaunchTest, RequiresCommandAndEnvironment) {
  EXPECT_THAT(run_lockstep("launch true").errors,
              HasSubstr("[launch] expected a command after --"));
  EXPECT_THAT(run_lockstep("launch -- true").errors,
              HasSubstr("[launch] expected RANK and WORLD_SIZE, TF_CONFIG, or "
                        "the variables of a Slurm step"));
  const Result nowhere =
      run({"env", "RANK=0", "WORLD_SIZE=2", LOCKSTEP_PROGRAM, "launch", "--", "true"});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.errors,
              HasSubstr("[launch] expected the host and port of the rendezvous: MASTER_ADDR and "
                        "MASTER_PORT"));
}

TEST_F(LaunchTest, PrintsRolesAndCommandOfTfConfig) {
  const Result result = run(
      {"env",
       R"(TF_CONFIG={"cluster": {"chief": ["a:1"], "worker": ["b:1", "b:2"]}, "task": {"type": "worker", "index": 0}})",
       LOCKSTEP_PROGRAM, "launch", "--print", "--", "lockstep", "train", "--model", "cnn"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.output,
            "# rank 0: chief:0 on a, writes checkpoints\n# rank 1: worker:0 on b\n# rank 2: "
            "worker:1 on b\n"
            "mpirun --bind-to none -np 3 -H a:1,b:2 lockstep train --model cnn\n");
}

TEST_F(LaunchTest, PrintsNoCommandWithoutHosts) {
  const Result result = run(task(0, {"--print"}, {"true"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(
      result.errors,
      HasSubstr("[launch] expected the host of every rank for --print, as TF_CONFIG and srun "
                "provide it, got none from RANK and WORLD_SIZE"));
}

TEST_F(LaunchTest, PrintsOneCommandPerSrunStep) {
  const auto line = [](int rank, const std::string& hosts) {
    return run({"env", fmt::format("SLURM_PROCID={}", rank), "SLURM_STEP_NUM_TASKS=2",
                "SLURM_STEP_NODELIST=" + hosts, "SLURM_STEP_TASKS_PER_NODE=1(x2)", LOCKSTEP_PROGRAM,
                "launch", "--print", "--", "true"});
  };
  EXPECT_EQ(line(0, "a,b").output, "mpirun --bind-to none -np 2 -H a:1,b:1 true\n");
  EXPECT_EQ(line(1, "a,b").output, "");
}

TEST_F(LaunchTest, PrintsNoAmbiguousCommand) {
  const Result result = run(
      {"env",
       R"(TF_CONFIG={"cluster": {"worker": ["[::1]:1"]}, "task": {"type": "worker", "index": 0}})",
       LOCKSTEP_PROGRAM, "launch", "--print", "--", "true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(
      result.errors,
      HasSubstr("[launch] expected names or IPv4 addresses of hosts for --print, got \"::1\""));
}

TEST_F(LaunchTest, RejectsInvalidHostNames) {
  for (const char* name : {"a:2", "a,b", "-a", "a\xc3\xa4"}) {
    const Result result = run(task(0, {std::string("--host=") + name}, {"true"}));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.errors, HasSubstr(fmt::format("for --host, got \"{}\"", name)));
  }
  // Invalid UTF-8 is shown escaped.
  const Result result = run(task(0, {"--host=a\xff"}, {"true"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("for --host, got \"a\xef\xbf\xbd\""));
}

TEST_F(LaunchTest, AcceptsAnyJobName) {
  Process other(task(1, {"--job", "j\xff"}, {"true"}));
  const Result first = run(task(0, {"--job", "j\xff"}, {"true"}));
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(other.finish().status, 0);
}

TEST_F(LaunchTest, TrainFailsInTaskOfSeveral) {
  const auto alone = [](const std::string& variables) {
    return run({"sh", "-c",
                fmt::format("{} {} train --model mlp --data synthetic:8x8x1,4,64", variables,
                            LOCKSTEP_PROGRAM)});
  };
  const std::string advice = " in one job: put \"lockstep launch --\" in front of the command";
  const Result plain = alone("RANK=1 WORLD_SIZE=2");
  EXPECT_EQ(plain.status, 2);
  EXPECT_THAT(plain.errors,
              HasSubstr("[session] expected the 2 tasks of RANK and WORLD_SIZE" + advice));
  const Result first = alone("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2");
  EXPECT_EQ(first.status, 2);
  EXPECT_THAT(first.errors, HasSubstr("[session] expected the 2 tasks of srun" + advice));
  const Result other = alone("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2");
  EXPECT_EQ(other.status, 2);
  EXPECT_EQ(other.errors, "") << "tasks of srun share their output: rank 0 says it for all";
}

// ---- End of a job

TEST_F(LaunchTest, SignalToAnyTaskSavesCheckpoint) {
  if (mpi_merges_hosts()) GTEST_SKIP() << "Open MPI 5 sees one host";
  const ScratchDirectory directory;
  Words train = kTrain;
  for (const std::string& word :
       {std::string("--epochs"), std::string("100000"), std::string("--checkpoint-dir"),
        (directory.path() / mark_).string()})
    train.push_back(word);
  Process first(task_elsewhere(0, {}, program(train)));
  Process other(task_elsewhere(1, {}, program(train)));
  ASSERT_TRUE(first.wait_for(R"("event":"step","step":5)"));
  // Schedulers also signal mpirun, its agents and its daemons, whose end would end the ranks
  // immediately.
  for (const Process* task : {&first, &other})
    for (const pid_t process : task->descendants()) ::kill(process, SIGTERM);
  other.kill(SIGTERM);
  const Result result = first.finish();
  EXPECT_EQ(result.status, 143) << result.errors;
  EXPECT_EQ(other.finish().status, 143);
  EXPECT_EQ(result.event("checkpoint")["step"], result.event("end")["steps"]);
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, HangupStopsRanks) {
  const Words command =
      shell("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done");
  Process first(task(0, {}, command));
  Process other(task(1, {}, command));
  ASSERT_TRUE(first.wait_for("ready\nready"));
  first.kill(SIGHUP);
  const Result result = first.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("asked\nasked"));
  EXPECT_EQ(other.finish().status, 0);
}

TEST_F(LaunchTest, HangupIsIgnoredUnderNohup) {
  struct sigaction before = {};
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGHUP, &ignored, &before);
  Process only(task(0, {}, shell("echo ready; sleep 1; echo done"), 1));
  sigaction(SIGHUP, &before, nullptr);
  ASSERT_TRUE(only.wait_for("ready"));
  only.kill(SIGHUP);
  const Result result = only.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("done"));
}

TEST_F(LaunchTest, SignalReachesRanksStartedByThreads) {
  // As mpirun does by default with more ranks on a host.
  const Words options = {"--mpirun", "--oversubscribe --mca odls_base_num_threads 2"};
  const Words command =
      shell("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done");
  Process first(task(0, options, command, 4));
  Process second(task(1, options, command, 4));
  Process third(task(2, options, command, 4));
  Process fourth(task(3, options, command, 4));
  ASSERT_TRUE(first.wait_for("ready\nready\nready\nready"));
  first.kill(SIGTERM);
  const Result result = first.finish();
  EXPECT_EQ(result.status, 0) << "mpirun has ended them";
  EXPECT_THAT(result.output, HasSubstr("asked\nasked\nasked\nasked"));
}

TEST_F(LaunchTest, SecondSignalEndsUnresponsiveRanks) {
  const Words command = shell("trap '' TERM; echo ready; while :; do sleep 0.1; done");
  Process first(task(0, {}, command));
  Process other(task(1, {}, command));
  ASSERT_TRUE(first.wait_for("ready\nready"));
  first.kill(SIGTERM);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(2500));  // earlier signals count as one request
  other.kill(SIGTERM);
  EXPECT_FALSE(Watched(first.id()).ends_within(3))
      << "this is the same request: schedulers signal one task after the other";
  first.kill(SIGTERM);
  EXPECT_NE(first.finish().status, 0);
  EXPECT_NE(other.finish().status, 0);
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, ReportsUnreachableDaemon) {
  const ScratchDirectory directory;
  std::filesystem::create_directories(directory.path());
  const std::filesystem::path daemon = directory.path() / launch::runtime_here().daemon;
  std::ofstream(daemon) << "#!/bin/sh\nexec sleep 1000 # " << mark_ << "\n";
  std::filesystem::permissions(daemon, std::filesystem::perms::owner_all);
  Words words = task_elsewhere(1, {}, shell("true"));
  words.insert(words.begin() + 1,
               fmt::format("PATH={}:{}", directory.path().string(), std::getenv("PATH")));
  Process other(words);
  const Result first = run(task_elsewhere(0, {"--timeout", "2"}, shell("true")));
  EXPECT_EQ(first.status, 4);
  EXPECT_THAT(first.errors, HasSubstr("[launch] expected mpirun on "));
  EXPECT_THAT(first.errors,
              HasSubstr(" and its daemons on host1 to connect within 2 s; no rank started; "));
  EXPECT_EQ(other.finish().status, 4);
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, RequiresMpirun) {
  Words words = task(0, {}, shell("true"));
  words.insert(words.begin() + 1, "PATH=/nowhere");
  Process other(task(1, {}, shell("true")));
  for (const Result& result : {run(words), other.finish()}) {
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.errors,
              "lockstep: error: [launch] expected mpirun in PATH; No such file or directory\n");
  }
}

TEST_F(LaunchTest, LostTaskEndsJobAndIsNamed) {
  const Words command = shell("echo ready; sleep 1000");
  Process first(task_elsewhere(0, {}, command));
  Process other(task_elsewhere(1, {}, command));
  ASSERT_TRUE(first.wait_for("ready\nready"));
  other.kill(SIGKILL);
  const Result result = first.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("[launch] expected every task to stay connected until the "
                                       "end of the job; lost rank 1 on host "
                                       "host1: "));
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, LostFirstTaskEndsJob) {
  const Words command = shell("echo ready; sleep 1000");
  Process first(task_elsewhere(0, {}, command));
  Process other(task_elsewhere(1, {}, command));
  ASSERT_TRUE(first.wait_for("ready\nready"));
  first.kill(SIGKILL);
  const Result result = other.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.errors, HasSubstr("[launch] expected rank 0 to stay connected until the end "
                                       "of the job; its connection closed"));
  EXPECT_TRUE(wait_until_all_ended());
}

TEST_F(LaunchTest, SignalBeforeRendezvousEndsAllTasks) {
  Process first(task(0, {}, shell("true"), 3));
  // It joins or is refused; both end with the status of the signal.
  Process other(task(1, {}, shell("true"), 3));
  ASSERT_TRUE(is_listening());
  first.kill(SIGTERM);
  EXPECT_EQ(first.finish().status, 143);
  other.kill(SIGTERM);
  EXPECT_EQ(other.finish().status, 143);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
