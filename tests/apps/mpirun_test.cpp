// The program under mpirun on 2, 3 and 4 ranks: results match those of one process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/system/host.h"
#include "tests/apps/houses.h"
#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"
#include "tests/support/mpirun.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMpirunTrain =
    "train --model mlp --data synthetic:8x8x1,4,1003 --global-batch 100 --log-format json "
    "--log-every 1 ";

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

void expect_same_losses(const Result& one, const Result& several) {
  ASSERT_EQ(one.status, 0) << one.errors;
  ASSERT_EQ(several.status, 0) << several.errors;
  const std::vector<double> expected = one.losses();
  const std::vector<double> losses = several.losses();
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], 1e-5 * std::abs(expected[i])) << "step " << i + 1;
  EXPECT_EQ(several.event("epoch")["samples"], one.event("epoch")["samples"]);
}

// A rank that is stopped before MPI_Init blocks the others in theirs.
TEST(MpirunStart, FailsIfRankIsStopped) {
  const std::string train = kMpirunTrain + "--start-timeout 2";
  const Result result = run(mpirun(
      2, {"sh", "-c",
          "[ $OMPI_COMM_WORLD_RANK = 0 ] || kill -STOP $$; exec " LOCKSTEP_PROGRAM " " + train}));
  EXPECT_EQ(result.status, 4) << result.errors;
  EXPECT_THAT(result.errors,
              HasSubstr("lockstep: error: [start] expected MPI_Init_thread to return within 2 s; "
                        "rank 0, host "));
}

class Mpirun : public ::testing::TestWithParam<int> {};

std::string name_of_ranks(const ::testing::TestParamInfo<int>& info) {
  return fmt::format("ranks_{}", info.param);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpirun, ::testing::Values(2, 3, 4), name_of_ranks);

TEST_P(Mpirun, ReportsTheLossesOfOneProcess) {
  const std::string options = kMpirunTrain + "--epochs 2 ";
  const Result one = run_lockstep(options + "--devices cpu:0");
  const Result several = run(mpirun(GetParam(), options));
  expect_same_losses(one, several);
  const auto start = several.event("start");
  EXPECT_EQ(start["world_size"], GetParam());
  EXPECT_EQ(start["ranks"], GetParam());
  EXPECT_EQ(start["nodes"], 1);
  ASSERT_EQ(start["devices"].size(), GetParam());
  EXPECT_EQ(start["devices"].back()["rank"], GetParam() - 1);
  EXPECT_EQ(start["strategy"], "multi-worker-mirrored");
}

TEST_P(Mpirun, TakesTheLocalStepsOfOneProcess) {
  const std::string options =
      kMpirunTrain + "--strategy local-steps --local-steps 3 --outer-step nesterov --epochs 2 ";
  std::string devices = "--devices cpu:0";
  for (int i = 1; i < GetParam(); ++i) devices += ",cpu:0";
  const Result one = run_lockstep(options + devices);
  const Result several = run(mpirun(GetParam(), options));
  EXPECT_EQ(hash_of(one), hash_of(several));
  expect_same_losses(one, several);
  const auto start = several.event("start");
  EXPECT_EQ(start["strategy"], "local-steps");
  EXPECT_THAT(start["caveat"], HasSubstr("other numbers of replicas give another result"));
  EXPECT_EQ(start["global_batch"],
            3 * run_lockstep(kMpirunTrain).event("start")["global_batch"].get<int>());
}

TEST_P(Mpirun, InitializesFromCheckpointAsOneProcess) {
  const ScratchDirectory directory;
  const std::string weights = directory.path() / "run";
  ASSERT_EQ(run_lockstep(kMpirunTrain + "--steps 5 --checkpoint-dir " + weights).status, 0);
  const std::string options =
      "train --model mlp --data synthetic:8x8x1,3,503 --global-batch 50 --steps 8 "
      "--log-format json --log-every 1 --reset-head --init-from " +
      weights;
  expect_same_losses(run_lockstep(options), run(mpirun(GetParam(), options)));
}

TEST_P(Mpirun, EvaluatesAndPredictsAsOneProcess) {
  const ScratchDirectory directory;
  const std::string run_directory = directory.path() / "run";
  ASSERT_EQ(run(mpirun(GetParam(), kMpirunTrain + "--checkpoint-dir " + run_directory)).status, 0);
  const std::string evaluate =
      "evaluate --data synthetic:8x8x1,4,777 --log-format json --metrics confusion,f1 "
      "--checkpoint " +
      run_directory;
  const auto one = run_lockstep(evaluate).event("evaluate");
  const auto several = run(mpirun(GetParam(), evaluate)).event("evaluate");
  EXPECT_EQ(several["samples"], 777);
  EXPECT_EQ(several["correct"], one["correct"]);
  EXPECT_EQ(several["accuracy"], one["accuracy"]);
  EXPECT_EQ(several["confusion"], one["confusion"]);
  EXPECT_EQ(several["f1"], one["f1"]);

  const auto predictions = [&](const std::vector<std::string>& command, const std::string& output) {
    EXPECT_EQ(run(command).status, 0);
    return checkpoint::read_small_file(output);
  };
  const std::string predict =
      "predict --data synthetic:8x8x1,4,77 --global-batch 10 --checkpoint " + run_directory +
      " --output ";
  const std::string alone = directory.path() / "one.csv";
  const std::string together = directory.path() / "several.csv";
  const auto expected = numbers_of(predictions(lockstep(predict + alone), alone));
  const auto predicted = numbers_of(predictions(mpirun(GetParam(), predict + together), together));
  ASSERT_EQ(expected.size(), 77U);
  ASSERT_EQ(predicted.size(), 77U);
  for (std::size_t record = 0; record < predicted.size(); ++record) {
    ASSERT_EQ(predicted[record].size(), 6U);
    EXPECT_EQ(predicted[record][0], static_cast<double>(record));
    EXPECT_EQ(predicted[record][1], expected[record][1]) << "record " << record;
    for (std::size_t i = 2; i < 6; ++i)
      EXPECT_NEAR(predicted[record][i], expected[record][i], 1e-5) << "record " << record;
  }
}

TEST(MpirunPredictions, AreIdenticalOnAnyNumberOfRanks) {
  const ScratchDirectory directory;
  const std::string run_directory = directory.path() / "run";
  const std::string train = write_houses(directory.path()) + kHouseLosses;
  ASSERT_EQ(run_lockstep(train + "--checkpoint-dir " + run_directory).status, 0);
  for (const std::string name : {"p.csv", "p.jsonl", "p.tfrecord"}) {
    const std::string predict =
        fmt::format("predict --global-batch 14 --checkpoint {} --data {} --output ", run_directory,
                    (directory.path() / "shards").string());
    const std::string alone = directory.path() / ("1_" + name);
    const std::string together = directory.path() / ("3_" + name);
    ASSERT_EQ(run_lockstep(predict + alone).status, 0);
    ASSERT_EQ(run(mpirun(3, predict + together)).status, 0);
    EXPECT_EQ(checkpoint::read_small_file(together), checkpoint::read_small_file(alone)) << name;
  }
}

TEST_P(Mpirun, ResumesExactlyAfterKillInEpoch) {
  const ScratchDirectory directory;
  const std::string run_path = directory.path() / "run";
  const std::string saved = kMpirunTrain + "--save-every 8 --checkpoint-dir " + run_path;
  Process process(mpirun(GetParam(), saved + " --epochs 100000"));  // it cannot end by itself
  ASSERT_TRUE(process.wait_for(R"("event":"checkpoint","step":16)"));
  const std::vector<pid_t> ranks = process.children();
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(GetParam()));
  ::kill(ranks.back(), SIGKILL);
  EXPECT_NE(process.finish().status, 0);
  const Result inspected = run_lockstep("inspect " + run_path);
  EXPECT_EQ(inspected.status, 0) << inspected.errors;
  EXPECT_THAT(inspected.output, HasSubstr(fmt::format("{} left no recording here",
                                                      "rank " + std::to_string(GetParam() - 1))));
  const std::string copy_path = directory.path() / "copy";
  std::filesystem::copy(run_path, copy_path, std::filesystem::copy_options::recursive);

  constexpr std::int64_t kStepsPerEpoch = 11;
  const std::int64_t newest = checkpoint::list_checkpoints(run_path).front().step;
  const std::string epochs = fmt::format(" --epochs {}", newest / kStepsPerEpoch + 1);
  const Result again = run(mpirun(GetParam(), saved + epochs));
  ASSERT_EQ(again.status, 0) << again.errors;
  EXPECT_GE(again.event("start")["first_step"], 16);
  EXPECT_LT(again.event("start")["first_step"], again.event("end")["steps"]);
  const Result straight = run(mpirun(GetParam(), kMpirunTrain + epochs));
  ASSERT_EQ(straight.status, 0) << straight.errors;
  EXPECT_EQ(again.event("end")["steps"], straight.event("end")["steps"]);
  EXPECT_EQ(again.event("end")["parameter_hash"], straight.event("end")["parameter_hash"]);

  const Result on_fewer = run(mpirun(
      GetParam() - 1, kMpirunTrain + "--save-every 8 --checkpoint-dir " + copy_path + epochs));
  ASSERT_EQ(on_fewer.status, 0) << on_fewer.errors;
  EXPECT_EQ(on_fewer.event("start")["first_step"], again.event("start")["first_step"]);
  EXPECT_EQ(on_fewer.event("start")["world_size"], GetParam() - 1);
  expect_same_losses(again, on_fewer);
}

TEST(MpirunReplicas, MatchReplicasOfOneProcess) {
  const std::string options = kMpirunTrain + "--epochs 1 ";
  expect_same_losses(run_lockstep(options), run(mpirun(2, options + "--devices cpu:0,cpu:0")));
  expect_same_losses(run_lockstep(options),
                     run(mpirun(3, options + "--allreduce mpi --accumulate 2")));
}

TEST(MpirunFailure, OfAllRanksIsPrintedOnce) {
  for (const auto& [options, status] :
       std::vector<std::pair<std::string, int>>{{"--no-such-option", 2},
                                                {"--model nothing", 2},
                                                {"--strategy mirrored", 2},
                                                {"--steps 5 --profile nowhere.jsonl", 2},
                                                {"--profile /nowhere/profile.jsonl", 3},
                                                {"--validation-data synthetic:9x8x1,4,10", 3}}) {
    const Result result = run(mpirun(3, kMpirunTrain + options));
    EXPECT_EQ(result.status, status) << options;
    EXPECT_EQ(occurrences(result.errors, "lockstep: error: "), 1U) << result.errors;
  }
}

/// A training with additional options for rank 1.
Result with_rank_1(const std::string& options) {
  return run(mpirun(
      2, std::vector<std::string>{"/bin/sh", "-c",
                                  "case ${OMPI_COMM_WORLD_RANK-$PMI_RANK} in 1) set -- \"$@\" " +
                                      options + ";; esac; exec \"$@\"",
                                  "sh", LOCKSTEP_PROGRAM, "train", "--model", "mlp", "--data",
                                  "synthetic:8x8x1,4,1003", "--global-batch", "100", "--epochs",
                                  "1000", "--checkpoint-dir", "none"}));
}

// On a common clock, a rank leaves a collective only after all have entered it.
TEST(MpirunTrace, AlignsCollectivesOfAllRanks) {
  const ScratchDirectory directory;
  const std::filesystem::path file = directory.path() / "trace.json";
  const Result result =
      run(mpirun(3, kMpirunTrain + "--steps 9 --trace " + file.string() + ":steps=4-6"));
  ASSERT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(occurrences(result.errors, "trace of 3 steps on 3 ranks: "), 1U) << result.errors;
  std::ifstream in(file);
  std::map<std::int64_t, std::vector<std::pair<double, double>>> of_collective;
  std::map<std::int64_t, std::set<std::int64_t>> steps_of;  // by process
  const nlohmann::json trace = nlohmann::json::parse(in);
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    if (event["name"] == "step") steps_of[event["pid"]].insert(event["args"]["step"].get<int>());
    if (event["name"] == "all_reduce")
      of_collective[event["args"]["collective"]].emplace_back(begin,
                                                              begin + event["dur"].get<double>());
  }
  ASSERT_EQ(steps_of.size(), 3U);
  for (const auto& [process, steps] : steps_of)
    EXPECT_EQ(steps, (std::set<std::int64_t>{4, 5, 6})) << process;
  std::size_t whole = 0;
  for (const auto& [number, spans] : of_collective) {
    if (spans.size() < 3) continue;  // cut off at the beginning or the end
    ++whole;
    const double last_begin = std::ranges::max_element(spans)->first;
    for (const auto& [begin, end] : spans) EXPECT_GE(end, last_begin) << number;
  }
  EXPECT_GE(whole, 3U);
}

// Each rank that was not killed writes its part.
TEST(MpirunTrace, KeepsPartsOfSurvivingRanks) {
  const ScratchDirectory directory;
  Process process(mpirun(
      3, kMpirunTrain + "--epochs 100000 --trace " + (directory.path() / "t.json").string()));
  ASSERT_TRUE(process.wait_for(R"("event":"step","step":5)"));
  const std::vector<pid_t> ranks = process.children();
  ASSERT_EQ(ranks.size(), 3U);
  ::kill(ranks[1], SIGKILL);
  const Result result = process.finish();
  EXPECT_NE(result.status, 0);
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "t.json"));
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "t.rank-1.json"));
  for (const int rank : {0, 2}) {
    std::ifstream in(directory.path() / fmt::format("t.rank-{}.json", rank));
    const nlohmann::json trace = nlohmann::json::parse(in);
    std::set<std::int64_t> steps;
    for (const nlohmann::json& event : trace.at("traceEvents"))
      if (event["name"] == "step") steps.insert(event["args"]["step"].get<std::int64_t>());
    EXPECT_THAT(steps, ::testing::IsSupersetOf({1, 2, 3, 4, 5})) << rank;
  }
  EXPECT_THAT(result.errors, HasSubstr("; the incomplete trace is in "));
}

TEST(MpirunProfile, IsWrittenByRankZero) {
  const ScratchDirectory directory;
  const std::filesystem::path file = directory.path() / "profile.jsonl";
  const Result result = run(mpirun(2, kMpirunTrain + "--profile " + file.string()));
  ASSERT_EQ(result.status, 0) << result.errors;
  const Result plain = run(mpirun(2, kMpirunTrain));
  EXPECT_EQ(result.event("end")["parameter_hash"], plain.event("end")["parameter_hash"]);
  std::vector<nlohmann::json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 13U);
  EXPECT_EQ(lines[10]["name"], "reduction");
  EXPECT_GT(lines[10]["ms"], 0);
  EXPECT_EQ(lines[12]["samples"], 50);
}

TEST(MpirunFailure, BeforeSessionIsPrintedByItsRank) {
  const Result result = with_rank_1("--no-such-option");
  EXPECT_EQ(result.status, 2) << result.errors;
  EXPECT_EQ(occurrences(result.errors, "lockstep: error: "), 1U) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr(fmt::format(" (rank 1, host {})\n", host_name())));
  EXPECT_THAT(result.errors, HasSubstr("--no-such-option"));
}

TEST(MpirunFailure, OfDifferingOptionsNamesTheFirst) {
  for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
           {"--loss huber", "expected the same losses on all ranks; rank 0 has cross-entropy"},
           {"--seed 5 --global-batch 50",
            "expected the same seed on all ranks; rank 0 has 1; rank 1 has 5"},
           {"--global-batch 50",
            "expected the same global batch on all ranks; rank 0 has 100; rank 1 has 50"}}) {
    const Result result = with_rank_1(options);
    EXPECT_EQ(result.status, 2) << result.errors;
    EXPECT_EQ(occurrences(result.errors, "lockstep: error: "), 1U) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("[ranks] " + message));
  }
}

TEST(MpirunFailure, OfOneRankEndsTheJob) {
  const Result result = with_rank_1("--data csv:nowhere.csv");
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_EQ(occurrences(result.errors, "lockstep: error: "), 1U) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("nowhere.csv"));
}

TEST(MpirunFailure, OfAKilledRankEndsTheJob) {
  Process process(mpirun(3, kMpirunTrain + "--epochs 100000"));
  ASSERT_TRUE(process.wait_for(R"("event":"step","step":5)"));
  const std::vector<pid_t> ranks = process.children();
  ASSERT_EQ(ranks.size(), 3U);
  const Watched first(ranks[0]);
  const Watched last(ranks[2]);
  ::kill(ranks[1], SIGKILL);
  EXPECT_NE(process.finish().status, 0);
  EXPECT_TRUE(first.ends_within(15));
  EXPECT_TRUE(last.ends_within(15));
}

const std::string kSmall = "train --model mlp:8 --data synthetic:4x4x1,4,640 --global-batch 16 ";

/// A training under mpirun with redirected streams, and a checkpoint at each of its 40 epochs.
class MpirunOutput : public ::testing::Test {
 protected:
  Result train(const std::string& redirection) const {
    std::string line;
    for (const std::string& word :
         mpirun(2, kSmall + "--log-every 1 --keep 100 --epochs 40 --checkpoint-dir " + run_path()))
      line += word + ' ';
    return run({"/bin/sh", "-c", line + redirection});
  }
  std::string run_path() const { return directory_.path() / "run"; }
  /// Expects intact checkpoints, and no output of a stream in other files.
  void expect_sound() const {
    EXPECT_EQ(run_lockstep("checkpoint verify " + run_path()).status, 0);
    EXPECT_THAT(checkpoint::contents_of(run_path() + "/.lock"),
                ::testing::MatchesRegex("process [0-9]+ on [^\n]*\n?"));
  }

 private:
  const ScratchDirectory directory_;
};

// The ranks write to mpirun, which drops output that it cannot write.
TEST_F(MpirunOutput, LostByMpirunDoesNotEndTraining) {
  for (const char* redirection : {"> /dev/full", ">&-"}) {
    SCOPED_TRACE(redirection);
    const Result result = train(std::string("--resume never --overwrite ") + redirection);
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_TRUE(std::filesystem::exists(run_path() + "/step-00001600/MANIFEST.json"));
    expect_sound();
  }
}

// mpirun ends the job when its reader closes the pipe. Earlier checkpoints remain.
TEST_F(MpirunOutput, ClosedByReaderKeepsCheckpoints) {
  const Result result = train("--epochs 100000 | grep -m 1 '^    3 '");
  EXPECT_THAT(result.output, HasSubstr("    3  "));
  expect_sound();
  EXPECT_GE(checkpoint::list_checkpoints(run_path()).front().step, 80);
}

// Open MPI's own files exceed the limit, too; it works without them. The files that the ranks share
// must be below the limit.
TEST_F(MpirunOutput, AtFileSizeLimitRaisesNoSignal) {
  const auto limited = [](const std::string& arguments) {
    std::vector<std::string> command =
        mpirun(2, std::vector<std::string>{"/bin/sh", "-c", "ulimit -f 100; exec \"$@\"", "sh"});
    for (const std::string& word : lockstep(arguments)) command.push_back(word);
    return run(command);
  };
  const Result small = limited(kSmall + "--quiet --epochs 1 --checkpoint-dir " + run_path());
  EXPECT_EQ(small.status, 0) << small.errors;
  expect_sound();
  const Result large = limited(kMpirunTrain);
  EXPECT_EQ(large.status, 5);
  EXPECT_EQ(occurrences(large.errors, "lockstep: error: [memory] "), 1U) << large.errors;
  EXPECT_THAT(large.errors, HasSubstr("File too large"));
}

class MpirunSignal : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Signals, MpirunSignal, ::testing::Values(SIGTERM, SIGHUP),
                         [](const auto& signal) {
                           return std::string(::sigabbrev_np(signal.param));
                         });

TEST_P(MpirunSignal, ToOneRankSavesOneCheckpoint) {
  const ScratchDirectory directory;
  Process process(mpirun(3, kMpirunTrain + "--epochs 100000 --save-every 100000 --checkpoint-dir " +
                                (directory.path() / "run").string()));
  ASSERT_TRUE(process.wait_for(R"("event":"step","step":5)"));
  const std::vector<pid_t> ranks = process.children();
  ASSERT_EQ(ranks.size(), 3U);
  ::kill(ranks[2], GetParam());
  const Result result = process.finish();
  EXPECT_EQ(result.status, 128 + GetParam()) << result.errors;
  EXPECT_EQ(result.event("checkpoint")["step"], result.event("end")["steps"]);
  const auto checkpoints = checkpoint::list_checkpoints(directory.path() / "run");
  ASSERT_EQ(checkpoints.size(), 1U);
  EXPECT_TRUE(checkpoints[0].complete());
}

// Open MPI's mpirun then sends the ranks SIGTERM a second later, and SIGKILL after another. It does
// not read their output meanwhile, and the pseudo-terminal between them holds 4 KiB, so they must
// not print much.
TEST(MpirunInterrupt, SavesOneCheckpointWithoutError) {
  const ScratchDirectory directory;
  const std::string run_path = (directory.path() / "run").string();
  Process process(mpirun(3,
                         "train --model mlp:1024,1024 --data synthetic:8x8x1,4,100000 "
                         "--global-batch 90 --log-format json --log-every 100 --save-every 100000 "
                         "--checkpoint-dir " +
                             run_path));
  ASSERT_TRUE(process.wait_for(R"("event":"step","step":100)"));
  process.kill(SIGINT);
  const Result result = process.finish();
  EXPECT_THAT(result.status, ::testing::AnyOf(1, 128 + SIGINT)) << "mpirun's own";
  EXPECT_THAT(result.errors, Not(HasSubstr("lockstep: error: ")));
  const auto checkpoints = checkpoint::list_checkpoints(run_path);
  ASSERT_EQ(checkpoints.size(), 1U) << result.errors;
  EXPECT_TRUE(checkpoints[0].complete());
  EXPECT_GE(checkpoints[0].step, 100);
}

TEST(MpirunDivergence, KeepsEarlierCheckpoints) {
  const ScratchDirectory scratch;
  const std::string directory = (scratch.path() / "run").string();
  const std::string train =
      "train --model mlp:8 --data synthetic:4x4x1,4,6400 --global-batch 16 --data-threads 1 "
      "--optimizer sgd "
      "--log-format json --save-every 1 --keep 2 --checkpoint-dir " +
      directory + " ";
  ASSERT_EQ(run(mpirun(2, train + "--learning-rate 0.1 --steps 8")).status, 0);
  // The first step with that rate saves a checkpoint of parameters that no later step can use.
  const Result wild = run(mpirun(2, train + "--learning-rate 1e38 --steps 200"));
  EXPECT_EQ(wild.status, 6);
  EXPECT_EQ(
      occurrences(wild.errors, "the newest healthy checkpoint is " + directory + "/step-00000008"),
      1U)
      << wild.errors;
  const Result again = run(mpirun(2, train + "--learning-rate 0.1 --steps 12"));
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(again.event("start")["first_step"], 8);
}

/// A training of two ranks in the working directory `directory`, with its default run directory.
Result train_in(const std::filesystem::path& directory) {
  return run({"sh", "-c",
              fmt::format("cd {} && exec {} {} {}--json --steps 4", directory.string(),
                          mpirun_line_on(2), LOCKSTEP_PROGRAM, kSmall)});
}

TEST(MpirunDirectory, IsSharedByAllRanks) {
  const ScratchDirectory scratch;
  for (const char* run : {"mlp-1", "mlp-2"}) {
    const Result result = train_in(scratch.path());
    EXPECT_EQ(result.status, 0) << result.errors;
    EXPECT_EQ(result.event("start")["run"], run);
    EXPECT_EQ(result.event("checkpoint")["path"], fmt::format("runs/{}/step-00000004", run));
  }
  EXPECT_EQ(checkpoint::names_in(scratch.path() / "runs"),
            (std::set<std::string>{"mlp-1", "mlp-2"}));
}

TEST(MpirunDirectory, IsOneErrorIfNotCreatable) {
  const ScratchDirectory scratch;
  checkpoint::overwrite(scratch.path() / "runs", "a file");
  const Result result = train_in(scratch.path());
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(occurrences(result.errors, "lockstep: error: "), 1U) << result.errors;
  EXPECT_EQ(occurrences(result.errors, " failed: [runs] expected to create a directory"), 1U)
      << result.errors;
}

TEST(MpirunEnvironment, RejectsContradictoryTfConfig) {
  setenv(
      "TF_CONFIG",
      R"({"cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": {"type": "worker", "index": 0}})",
      1);
  const Result result = run(mpirun(2, kMpirunTrain));
  unsetenv("TF_CONFIG");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(occurrences(result.errors, "lockstep: error: "), 1U) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("TF_CONFIG"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
