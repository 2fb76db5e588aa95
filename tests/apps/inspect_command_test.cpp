#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string inspected_train(const std::filesystem::path& directory) {
  return kTrain + "--epochs 1000000 --checkpoint-dir " + directory.string();
}

TEST(Inspect, QueriesRunningTraining) {
  const ScratchDirectory scratch;
  Process process(lockstep(inspected_train(scratch.path() / "run")));
  ASSERT_TRUE(process.wait_for(R"("step":3,)"));
  const Result first = run_lockstep("inspect --events 5 " + std::to_string(process.id()));
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.output,
              AllOf(HasSubstr("1 of 1 ranks"), HasSubstr("rank 0 recorded because of: SIGUSR1"),
                    ContainsRegex("rank 0 on .*, process " + std::to_string(process.id()) +
                                  ": step [0-9]+\n"),
                    HasSubstr("last events of rank 0\n")));
  ASSERT_TRUE(process.wait_for(R"("event":"epoch","epoch":2)")) << "it goes on";
  EXPECT_EQ(run_lockstep("inspect " + std::to_string(process.id())).status, 0) << "again";
  process.kill(SIGTERM);
  EXPECT_EQ(process.finish().status, 128 + SIGTERM);
  const Result later = run_lockstep("inspect " + (scratch.path() / "run").string());
  EXPECT_THAT(later.output, HasSubstr("recorded because of: SIGUSR1")) << later.errors;
}

TEST(Inspect, WarnsAboutDirectoryOfAnotherUser) {
  const ScratchDirectory scratch;
  const std::filesystem::path notes =
      scratch.path() / fmt::format("lockstep-recorder-{}", ::geteuid());
  std::filesystem::create_directory(notes);
  std::filesystem::permissions(notes, std::filesystem::perms::all);
  Process process({"env", "-u", "XDG_RUNTIME_DIR", "TMPDIR=" + scratch.path().string(), "sh", "-c",
                   "echo started; exec sleep 100"});
  ASSERT_TRUE(process.wait_for("started"));
  const Result result = run_lockstep("inspect " + std::to_string(process.id()));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("[" + notes.string() +
                                       "] expected the directory of the recordings of the user"));
  EXPECT_THAT(result.errors, HasSubstr("or set TMPDIR for the training; every user may write it"));
}

TEST(Inspect, ShowsReasonOfFailure) {
  const ScratchDirectory scratch;
  const std::string directory = (scratch.path() / "run").string();
  const Result failed = run_lockstep(kTrain + "--learning-rate 1e38 --steps 200 --optimizer sgd " +
                                     "--checkpoint-dir " + directory);
  ASSERT_EQ(failed.status, 6) << failed.errors;
  EXPECT_THAT(failed.errors, HasSubstr("the last events of the ranks are in " + directory +
                                       " (lockstep inspect " + directory + ")\n"));
  const Result inspected = run_lockstep("inspect " + directory);
  EXPECT_EQ(inspected.status, 0) << inspected.errors;
  const Result json = run_lockstep("inspect --json --events 3 " + directory);
  ASSERT_EQ(json.status, 0) << json.errors;
  ASSERT_EQ(json.events().size(), 1U);
  const nlohmann::json object = json.events().front();
  EXPECT_EQ(object["size"], 1);
  ASSERT_EQ(object["ranks"].size(), 1U);
  EXPECT_EQ(object["ranks"][0]["events"].size(), 3U);
  EXPECT_EQ(object["reasons"][0]["ranks"].dump(), "[0]");
  EXPECT_THAT(object["reasons"][0]["reason"].get<std::string>(),
              StartsWith("[train] expected finite"));
  EXPECT_FALSE(object["reading"].empty());
  EXPECT_THAT(inspected.output, HasSubstr("rank 0 recorded because of: [train] expected finite"));

  std::ofstream(directory + "/recorder-1.jsonl") << "no recording\n";
  const Result without = run_lockstep("inspect " + directory);
  EXPECT_EQ(without.status, 0);
  EXPECT_EQ(without.output, inspected.output);
  EXPECT_THAT(without.errors,
              AllOf(StartsWith("lockstep: warning: "), HasSubstr("recorder-1.jsonl line 1")));
  std::filesystem::remove(directory + "/recorder-0.jsonl");
  EXPECT_EQ(run_lockstep("inspect " + directory).status, 3);
}

TEST(Inspect, RejectsOtherArguments) {
  const ScratchDirectory scratch;
  Result result = run_lockstep("inspect " + std::to_string(::getpid()));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("expected a rank of `lockstep train`, or a program that "
                                       "started ranks on this host"));
  result = run_lockstep("inspect 1073741823");  // above the largest process ID
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.errors, HasSubstr("expected a running process"));
  result = run_lockstep("inspect " + scratch.path().string());
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected recordings (recorder-RANK.jsonl)"));
  result = run_lockstep("inspect " + (scratch.path() / "nothing").string());
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected the ID of a process or a directory"));
  std::ofstream(scratch.path() / "recorder-0.jsonl") << "{\"recorder\":2}\n";
  result = run_lockstep("inspect " + scratch.path().string());
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("expected a recording of version 1"));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
