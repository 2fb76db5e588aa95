// Full and failing disks, for each file that a command writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::size_t error_lines(const Result& result) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = result.errors.find("lockstep: error: ", at)) != std::string::npos;
       ++at)
    ++count;
  return count;
}

// ---- Full disks

/// A directory on a separate disk of 64 KiB, visible to the commands of with_disk(). Requires
/// permission to mount.
class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(disk());
    if (run({"unshare", "-m", "true"}).status != 0 || with_disk("true").status != 0)
      GTEST_SKIP() << "no right to mount a tmpfs in a namespace of its own (CAP_SYS_ADMIN)";
  }

  std::string at(const std::string& name) const { return scratch_.path() / name; }
  std::string disk() const { return at("disk"); }
  /// Runs a shell command, with the program as $L and an empty disk.
  Result with_disk(const std::string& line) const {
    return run({"unshare", "-m", "/bin/sh", "-c",
                fmt::format("mount -t tmpfs -o size=64k none {} || exit 99; L='{}'; {}", disk(),
                            LOCKSTEP_PROGRAM, line)});
  }
  const ScratchDirectory scratch_;
};

TEST_F(FullDisk, OfSummariesDoesNotEndTraining) {
  const Result result = with_disk(
      fmt::format("$L train --model mlp --log-every 1 --epochs 100 --save-every 1000000 "
                  "--checkpoint-dir {} --summary-dir {} {}; s=$?; ls -s {}/train >&2; exit $s",
                  at("run"), disk(), kData, disk()));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(error_lines(result), 0U);
  EXPECT_THAT(
      result.errors,
      HasSubstr("expected to write the summary; No space left on device; the training continues"));
  EXPECT_THAT(result.errors, ContainsRegex("[0-9]+ points of the summaries are lost"));
  EXPECT_EQ(run_lockstep("checkpoint verify " + at("run")).status, 0);
  EXPECT_TRUE(std::filesystem::exists(at("run") + "/step-00001100"));
}

TEST_F(FullDisk, OfMetricsDoesNotEndTraining) {
  const Result result =
      with_disk(fmt::format("cat /dev/zero > {}/other 2> /dev/null; $L train --checkpoint-dir none "
                            "--model mlp --epochs 3 --metrics-file "
                            "{}/lockstep.prom {}",
                            disk(), disk(), kData));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(error_lines(result), 0U);
  EXPECT_THAT(result.errors, ContainsRegex("No space left on device; the training continues"));
  EXPECT_THAT(result.errors, ContainsRegex("could not be written to .*lockstep.prom [0-9]+ times"));
}

TEST_F(FullDisk, OfPredictionsIsAnError) {
  ASSERT_EQ(run_lockstep(kTrain + "--steps 2 --checkpoint-dir " + at("run")).status, 0);
  const Result result =
      with_disk(fmt::format("$L predict --checkpoint {} --data synthetic:8x8x1,4,10000 --output "
                            "{}/p.csv; s=$?; ls -A {} >&2; exit $s",
                            at("run"), disk(), disk()));
  EXPECT_EQ(result.status, 3) << result.errors;
  EXPECT_EQ(error_lines(result), 1U) << result.errors;
  EXPECT_THAT(result.errors, ContainsRegex("\\[.*p.csv\\] .*No space left on device\n$"))
      << "nothing is left there";
}

TEST_F(FullDisk, OfShardsAndTheirIndexIsAnError) {
  std::string table = "a,b,label\n";
  for (int row = 0; row < 20000; ++row) table += fmt::format("{},{},{}\n", row, row * 2, row % 3);
  checkpoint::overwrite(at("t.csv"), table);
  const std::string convert = "$L data convert csv --input " + at("t.csv") + " --output ";
  const Result converted = with_disk(convert + disk() + "/shards");
  EXPECT_EQ(converted.status, 3) << converted.errors;
  EXPECT_EQ(error_lines(converted), 1U) << converted.errors;
  EXPECT_THAT(converted.errors, HasSubstr("No space left on device"));

  // An index saves time; without one the training is the same.
  const std::string train = fmt::format(
      "$L train --checkpoint-dir none --model linear --steps 3 --data '{}/*.tfrecord' --index-dir "
      "{} --log-format json",
      at("shards"), disk());
  const Result trained =
      with_disk(fmt::format("{}{} >&2 && dd if=/dev/zero of={}/filler bs=1024 2>/dev/null; {}",
                            convert, at("shards"), disk(), train));
  EXPECT_EQ(trained.status, 0) << trained.errors;
  EXPECT_EQ(error_lines(trained), 0U) << trained.errors;
}

// ---- Calls that fail

class FailingCalls : public ::testing::Test {
 protected:
  std::string directory() const { return scratch_.path() / "run"; }
  std::string train(int steps) const {
    return fmt::format("{} --devices cpu:0 --save-every 4 --keep 3 --steps {} --checkpoint-dir {}",
                       kTrain, steps, directory());
  }
  static std::vector<std::string> on(int ranks, const std::vector<std::string>& command) {
    return ranks == 1 ? command : mpirun(ranks, command);
  }

  /// Expects that a training with a checkpoint resumes while call `number` of each rank fails.
  /// Returns whether there are that many calls.
  bool resumes_with_failing_call(int number, int error, int ranks = 1) {
    SCOPED_TRACE(fmt::format("call {}, {}", number, std::generic_category().message(error)));
    std::filesystem::remove_all(scratch_.path());
    // The other ranks write below their temporary directory.
    std::filesystem::create_directories(scratch_.path() / "tmp");
    EXPECT_EQ(run(on(ranks, lockstep(train(4)))).status, 0);
    std::vector<std::string> command = {"timeout",
                                        "60",
                                        "env",
                                        "LD_PRELOAD=" LOCKSTEP_FAILING_CALLS,
                                        "TMPDIR=" + (scratch_.path() / "tmp").string(),
                                        "FAILING_BELOW=" + scratch_.path().string(),
                                        fmt::format("FAILING_CALL={}", number),
                                        fmt::format("FAILING_ERROR={}", error)};
    for (const std::string& word : lockstep(train(12))) command.push_back(word);
    const Result failed = run(on(ranks, command));
    EXPECT_THAT(failed.status, AnyOf(0, 3)) << failed.errors;
    EXPECT_EQ(error_lines(failed), failed.status == 0 ? 0U : 1U) << failed.errors;
    const Result verified = run_lockstep("checkpoint verify " + directory());
    EXPECT_EQ(verified.status, 0) << verified.output << failed.errors;
    const Result again = run(on(ranks, lockstep(train(12))));
    EXPECT_EQ(again.status, 0) << again.errors;
    EXPECT_GE(again.event("start")["first_step"], 4);
    if (straight_.empty())
      straight_ = hash_of(run(on(ranks, lockstep(kTrain + "--devices cpu:0 --steps 12"))));
    EXPECT_EQ(hash_of(again), straight_);
    return failed.errors.find("pretend: call ") != std::string::npos;
  }

 private:
  const ScratchDirectory scratch_;
  std::string straight_;
};

TEST_F(FailingCalls, KeepEarlierCheckpoints) {
  for (const int number : {2, 7, 13}) EXPECT_TRUE(resumes_with_failing_call(number, ENOSPC));
}

TEST_F(FailingCalls, OnTwoRanksKeepEarlierCheckpoints) {
  for (const int number : {2, 9}) EXPECT_TRUE(resumes_with_failing_call(number, EIO, 2));
}

class LongFailingCalls : public FailingCalls, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Errors, LongFailingCalls, ::testing::Values(EIO, ENOSPC, EDQUOT, ESTALE),
                         [](const auto& error) {
                           return std::string(::strerrorname_np(error.param));
                         });

TEST_P(LongFailingCalls, KeepEarlierCheckpoints) {
  for (int number = 1; number <= 60; ++number) resumes_with_failing_call(number, GetParam());
}

TEST_P(LongFailingCalls, OnTwoRanksKeepEarlierCheckpoints) {
  for (int number = 1; number <= 60; ++number) resumes_with_failing_call(number, GetParam(), 2);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
