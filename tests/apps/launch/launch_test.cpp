// lockstep launch, and the program as a rank of a job that a controller starts without MPI.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "apps/lockstep/launch/ranks.h"
#include "lockstep/base/error.h"
#include "lockstep/net/socket.h"
#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using launch::HostRanks;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

const std::string kTrain =
    "train --model mlp --epochs 1 --data synthetic:8x8x1,4,512 --global-batch 64 --log-format json "
    "--log-every 1";

/// `lockstep launch OPTIONS -- COMMAND`
Words launched(const std::string& options, const Words& command) {
  Words words = {LOCKSTEP_PROGRAM};
  for (std::string rest = "launch " + options + " --"; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    words.push_back(rest.substr(0, end));
    rest.erase(0, end + 1);
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

Words shell(const std::string& text) { return {"sh", "-c", text}; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// ---- Jobs

TEST(Launch, TrainsAsMpirunDoes) {
  const std::string train = kTrain + " --allreduce ring";
  const Result by_mpirun = run(mpirun(3, train));
  const Result result = run(launched("--np 3", lockstep(train)));
  ASSERT_EQ(by_mpirun.status, 0) << by_mpirun.errors;
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("end")["parameter_hash"], by_mpirun.event("end")["parameter_hash"]);
  EXPECT_EQ(result.losses(), by_mpirun.losses());
  EXPECT_EQ(result.event("start")["ranks"], 3);
  EXPECT_EQ(by_mpirun.event("start")["transport"], "mpi");
  EXPECT_THAT(by_mpirun.event("start")["transport_reason"], ContainsRegex("MPI v.* of mpirun"));
  EXPECT_EQ(result.event("start")["transport"], "tcp");
  EXPECT_EQ(result.event("start")["transport_reason"], "RANK and WORLD_SIZE");
}

TEST(Launch, PrintsWhatCarriesMessages) {
  const Result result =
      run(launched("--np 2", lockstep("train --model mlp --data synthetic:8x8x1,4,40 "
                                      "--global-batch 20 --epochs 1 --checkpoint-dir none")));
  EXPECT_THAT(result.output,
              HasSubstr("2 ranks on 1 node; messages over tcp: RANK and WORLD_SIZE\n"));
}

TEST(Launch, TellsEachRankWhoItIs) {
  const Result result = run(
      launched("--np 2", shell("echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at "
                               "$MASTER_ADDR, ${#LOCKSTEP_JOB_SECRET} $TF_CONFIG$SLURM_PROCID")));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(lines_of(result.output), UnorderedElementsAre("0 of 2, 0 of 2 at 127.0.0.1, 64",
                                                            "1 of 2, 1 of 2 at 127.0.0.1, 64"));
}

TEST(Launch, HasTheOptionsAndVariablesOfHorovod) {
  const Result result = run(launched(
      "-np 2 -H localhost:2 --start-timeout 7.5 --timeline-filename t.json",
      shell("echo $HOROVOD_RANK of $HOROVOD_SIZE, $HOROVOD_LOCAL_RANK of $HOROVOD_LOCAL_SIZE, "
            "$LOCKSTEP_START_TIMEOUT, $HOROVOD_TIMELINE")));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(lines_of(result.output),
              UnorderedElementsAre("0 of 2, 0 of 2, 7.5, t.json", "1 of 2, 1 of 2, 7.5, t.json"));
}

TEST(Launch, ReturnsTheStatusOfTheRankThatFails) {
  const Result result = run(launched("--np 3", shell("exit $((RANK == 1 ? 7 : 0))")));
  EXPECT_EQ(result.status, 7);
  EXPECT_EQ(result.errors, "") << "the rank has said why";
}

TEST(Launch, EndsRanksThatRemainAndNamesTheSignal) {
  const Result result = run(launched("--np 2", shell("[ $RANK = 1 ] && kill -9 $$; sleep 100")));
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_THAT(result.errors,
              AllOf(HasSubstr("lockstep: error: [launch] expected rank 1 on "),
                    HasSubstr(" to run until its end, got: signal 9 (Killed) ended it")));
}

TEST(Launch, SignalSavesACheckpoint) {
  const ScratchDirectory directory;
  Process job(launched("--np 2", lockstep(fmt::format("{} --epochs 100000 --checkpoint-dir {}",
                                                      kTrain, directory.path().string()))));
  ASSERT_TRUE(job.wait_for(R"("event":"step","step":5)"));
  job.kill(SIGTERM);
  const Result result = job.finish();
  EXPECT_EQ(result.status, 143) << result.errors;
  EXPECT_EQ(result.event("checkpoint")["step"], result.event("end")["steps"]);
}

TEST(Launch, HangupStopsRanks) {
  Process job(launched(
      "--np 2", shell("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done")));
  ASSERT_TRUE(job.wait_for("ready\nready"));
  job.kill(SIGHUP);
  const Result result = job.finish();
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, HasSubstr("asked\nasked"));
}

TEST(Launch, SecondSignalKillsUnresponsiveRanks) {
  Process job(launched("--np 2", shell("trap '' TERM; echo ready; while :; do sleep 0.1; done")));
  ASSERT_TRUE(job.wait_for("ready\nready"));
  job.kill(SIGTERM);
  job.kill(SIGTERM);  // a scheduler signals several processes
  EXPECT_FALSE(Watched(job.id()).ends_within(1));
  // The delay is the subject: signals within two seconds are one request.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  job.kill(SIGTERM);
  EXPECT_EQ(job.finish().status, 128 + SIGKILL);
}

TEST(Launch, RanksEndWithTheLauncher) {
  Process job(launched("--np 2", shell("echo ready; exec sleep 1000")));
  ASSERT_TRUE(job.wait_for("ready\nready"));
  const std::vector<pid_t> ranks = job.children();
  ASSERT_EQ(ranks.size(), 2U);
  const Watched first(ranks[0]);
  const Watched second(ranks[1]);
  job.kill(SIGKILL);
  EXPECT_TRUE(first.ends_within(5));
  EXPECT_TRUE(second.ends_within(5));
  job.finish();
}

TEST(Launch, MeasuresReductions) {
  const auto bench = [](const std::string& routes) {
    return run(launched("--np 2", lockstep("allreduce-bench --min-bytes 4096 --max-bytes 4096 "
                                           "--check --allreduce " +
                                           routes)));
  };
  const Result result = bench("ring,shared-memory");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, AllOf(HasSubstr("ring"), HasSubstr("shared-memory")));
  const Result by_mpi = bench("mpi");
  EXPECT_EQ(by_mpi.status, 2);
  EXPECT_THAT(by_mpi.errors, HasSubstr("[--allreduce] expected ranks that mpirun started for mpi"));
}

TEST(Launch, ExaminesTheJob) {
  const Result result = run(launched("--np 2", lockstep("doctor --json")));
  EXPECT_LE(result.status, 1) << result.errors;
  EXPECT_THAT(result.output, AllOf(HasSubstr("links"), HasSubstr("routes")));
}

// ---- Other hosts

/// Stands in for ssh to a host, which is this one.
class Ssh {
 public:
  explicit Ssh(const std::string& script = "exec sh -c \"$*\"") {
    std::filesystem::create_directories(directory_.path());
    std::ofstream(directory_.path() / "ssh")
        << "#!/bin/sh\nwhile [ \"$1\" = -o ]; do shift 2; done\nhost=$1; shift\n"
        << script << "\n";
    std::filesystem::permissions(directory_.path() / "ssh", std::filesystem::perms::owner_all);
  }
  Words with(Words words) const {
    words.insert(words.begin(), {"env", fmt::format("PATH={}:{}", directory_.path().string(),
                                                    std::getenv("PATH"))});
    return words;
  }

 private:
  ScratchDirectory directory_;
};

TEST(LaunchOnHosts, StartsRanksBySsh) {
  const Ssh ssh;
  Words words = launched("--hosts localhost:1,other.invalid:2",
                         shell("echo $RANK of $WORLD_SIZE, $LOCAL_RANK: $LOCKSTEP_TEST in $PWD"));
  words.insert(words.begin(), {"env", "LOCKSTEP_TEST=a 'b'"});
  const Result result = run(ssh.with(words));
  EXPECT_EQ(result.status, 0) << result.errors;
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(lines_of(result.output),
              UnorderedElementsAre("0 of 3, 0: a 'b' in " + here, "1 of 3, 0: a 'b' in " + here,
                                   "2 of 3, 1: a 'b' in " + here));
}

TEST(LaunchOnHosts, TrainsAsOneJob) {
  const Ssh ssh;
  const Result result =
      run(ssh.with(launched("--np 2 --hosts localhost:1,other.invalid:4", lockstep(kTrain))));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.event("start")["ranks"], 2);
}

TEST(LaunchOnHosts, ForwardsSignals) {
  const Ssh ssh;
  Process job(ssh.with(
      launched("--hosts localhost:1,other.invalid:1",
               shell("trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.1; done"))));
  ASSERT_TRUE(job.wait_for("ready\nready"));
  job.kill(SIGTERM);
  const Result result = job.finish();
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("asked\nasked"));
}

TEST(LaunchOnHosts, ReturnsTheStatusOfARankElsewhere) {
  const Ssh ssh;
  EXPECT_EQ(run(ssh.with(launched("--hosts localhost:1,other.invalid:1",
                                  shell("exit $((RANK == 1 ? 7 : 0))"))))
                .status,
            7);
}

TEST(LaunchOnHosts, NamesAHostThatSshDoesNotReach) {
  const Ssh ssh("echo 'ssh: no route to host' >&2; exit 255");
  const Result result =
      run(ssh.with(launched("--hosts localhost:1,other.invalid:1", shell("sleep 100"))));
  EXPECT_EQ(result.status, 255);
  EXPECT_THAT(result.errors,
              AllOf(HasSubstr("ssh: no route to host\n"),
                    HasSubstr("[launch] expected host other.invalid to run until its end")));
}

TEST(LaunchOnHosts, SendsNoSecretOnACommandLine) {
  const Ssh ssh("echo \"$*\"; exec sh -c \"$*\"");
  const Result result =
      run(ssh.with(launched("--hosts localhost:1,other.invalid:1", shell("true"))));
  EXPECT_EQ(result.output, fmt::format("exec '{}' launch --part\n", LOCKSTEP_PROGRAM));
}

// ---- Controllers

TEST(TaskOfAController, TrainsWithTheOthers) {
  const std::uint16_t port = net::Listener().port();
  const auto task = [&](int rank) {
    Words words = {"env", fmt::format("RANK={}", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                   fmt::format("MASTER_PORT={}", port)};
    for (const std::string& word : lockstep(kTrain)) words.push_back(word);
    return words;
  };
  Process other(task(1));
  const Result first = run(task(0));
  const Result second = other.finish();
  ASSERT_EQ(first.status, 0) << first.errors;
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_EQ(second.output, "");
  EXPECT_EQ(first.event("start")["ranks"], 2);
}

TEST(TaskOfAController, RequiresTheAddressOfRankZero) {
  const Result result =
      run({"sh", "-c", fmt::format("RANK=0 WORLD_SIZE=2 {} {}", LOCKSTEP_PROGRAM, kTrain)});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors,
              HasSubstr("[start] expected the host and port of rank 0 in MASTER_ADDR and "
                        "MASTER_PORT"));
  const auto errors_with = [](const char* variables) {
    return run({"sh", "-c", fmt::format("{} {} {}", variables, LOCKSTEP_PROGRAM, kTrain)}).errors;
  };
  EXPECT_THAT(errors_with("RANK=0 WORLD_SIZE=2 LOCKSTEP_RENDEZVOUS=node"),
              HasSubstr(R"([LOCKSTEP_RENDEZVOUS] expected an address "host:port", got "node")"));
  EXPECT_THAT(errors_with(R"(TF_CONFIG='{"cluster":{"worker":["a","b"]},)"
                          R"("task":{"type":"worker","index":0}}')"),
              HasSubstr("[start] expected the host and port of rank 0 in TF_CONFIG, got \"a\" and "
                        "0"));
}

TEST(TaskOfAController, RequiresASecretBetweenHosts) {
  const Result result =
      run({"sh", "-c",
           fmt::format("RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=2222 {} {}",
                       LOCKSTEP_PROGRAM, kTrain)});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("expected a secret of the job in LOCKSTEP_JOB_SECRET_FILE"));
}

TEST(Transport, MpiRequiresMpirun) {
  const Result result = run_lockstep(kTrain + " --transport mpi");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("for the transport mpi"), HasSubstr("mpirun -np N")));
}

TEST(Transport, TcpRequiresTheVariablesOfATask) {
  const Result result = run_lockstep(kTrain + " --transport tcp");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("[session] expected RANK, WORLD_SIZE, MASTER_ADDR"));
}

// ---- Command lines

TEST(Launch, RefusesIncompleteCommandLines) {
  EXPECT_THAT(run_lockstep("launch --np 2 true").errors,
              HasSubstr("[launch] expected a command after --"));
  EXPECT_THAT(run_lockstep("launch -- true").errors,
              HasSubstr("[launch] expected --np N or --hosts HOST:N"));
  const Result missing = run_lockstep("launch --np 2 -- no-such-program");
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.errors, HasSubstr("[launch] expected no-such-program in PATH"));
}

TEST(Launch, RefusesToBeARank) {
  const Result result = run(mpirun(1, "launch --np 2 -- true"));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("mpirun started it as rank 0: run the command without "
                                       "`lockstep launch`"));
  EXPECT_THAT(run({"sh", "-c",
                   fmt::format("RANK=1 WORLD_SIZE=2 {} launch --np 2 -- true", LOCKSTEP_PROGRAM)})
                  .errors,
              HasSubstr("RANK and WORLD_SIZE started it as rank 1: run the command without"));
}

TEST(PlaceRanks, FillsHostsInOrder) {
  using launch::place_ranks;
  EXPECT_THAT(place_ranks("", 3), ElementsAre(HostRanks{.host = "", .first = 0, .count = 3}));
  const HostRanks two{.host = "a", .first = 0, .count = 2};
  EXPECT_THAT(place_ranks("a:2,b", 0),
              ElementsAre(two, HostRanks{.host = "b", .first = 2, .count = 1}));
  EXPECT_THAT(place_ranks("a:2,b:4", 3),
              ElementsAre(two, HostRanks{.host = "b", .first = 2, .count = 1}));
  EXPECT_THAT(place_ranks("a:2,b:4", 2), ElementsAre(two));
  EXPECT_THAT(place_ranks("me@node-1.x:1", 0),
              ElementsAre(HostRanks{.host = "me@node-1.x", .first = 0, .count = 1}));
}

TEST(PlaceRanks, RefusesOtherLists) {
  for (const char* list : {",", "a,", ":2", "a:0", "a:x", "a:-1", "-oProxy:1", "a b:1", "a:70000"})
    EXPECT_THAT(allreduce::error_of([&] { launch::place_ranks(list, 0); }),
                HasSubstr("[--hosts] expected"))
        << list;
  EXPECT_THAT(allreduce::error_of([] { launch::place_ranks("a:2,b:1", 4); }),
              HasSubstr("[--hosts] expected room for 4 ranks"));
}

TEST(HostPart, IsReadAsWritten) {
  const launch::HostPart part{.ranks = {.host = "b", .first = 2, .count = 3},
                              .size = 5,
                              .rendezvous = "a",
                              .port = 4711,
                              .secret = "s",
                              .directory = "/d e",
                              .environment = {"A=b c"},
                              .command = {"echo", "x y", "\n"}};
  EXPECT_EQ(launch::parse_part(to_line(part)), part);
  EXPECT_EQ(to_line(part).find('\n'), std::string::npos);
  for (const char* line : {"", "[]", "{}", R"(["b",2,3,5,"a",4711,"s","/d",[],[]])"})
    EXPECT_THROW(launch::parse_part(line), Error) << line;
}

}  // namespace
}  // namespace lockstep::inline v0::apps
