// Standard streams that are full, closed or not read: lost output has status 3, and does not end a
// training.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/apps/program.h"
#include "tests/apps/training.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs a shell command in which $L is the program.
Result shell(const std::string& line) {
  return run({"/bin/sh", "-c", "L='" LOCKSTEP_PROGRAM "'; " + line});
}

/// Expects one error line about standard output that ends with `got`.
void expect_lost(const Result& result, const std::string& got) {
  EXPECT_THAT(result.errors,
              ContainsRegex("lockstep: error: \\[standard output\\] expected .* " + got + "\n"));
  const std::size_t first = result.errors.find("lockstep: error:");
  EXPECT_EQ(result.errors.find("lockstep: error:", first + 1), std::string::npos) << result.errors;
}

class LostOutput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<checkpoint::ScratchDirectory>();
    checkpoint::overwrite(scratch_->path() / "t.csv", "a,b,label\n1,2,0\n3,4,1\n5,6,2\n");
    ASSERT_EQ(run_lockstep(kTrain + "--steps 3 --checkpoint-dir " + at("run")).status, 0);
    ASSERT_EQ(run_lockstep("data convert csv --input " + at("t.csv") + " --output " + at("shards"))
                  .status,
              0);
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string at(const std::string& name) { return scratch_->path() / name; }
  static std::string training(const std::string& name) {
    return "train --model mlp:8 --data synthetic:4x4x1,4,640 --global-batch 16 --epochs 2 "
           "--checkpoint-dir " +
           at(name);
  }
  /// Expects that the training completed.
  static void expect_trained(const std::string& name) {
    EXPECT_TRUE(std::filesystem::exists(at(name) + "/step-00000080/MANIFEST.json"));
  }

  static inline std::unique_ptr<checkpoint::ScratchDirectory> scratch_;
};

TEST_F(LostOutput, HasStatusThree) {
  const std::string shards = "'" + at("shards") + "/*.tfrecord'";
  const std::string evaluate = "evaluate --checkpoint " + at("run") + kData;
  for (const std::string& arguments :
       {std::string("version"),
        std::string("version --json"),
        std::string("--version"),
        std::string("--help"),
        std::string("train --help"),
        "train --print-config --model mlp" + kData,
        evaluate,
        evaluate + "--log-format json",
        "predict --quiet --output - --checkpoint " + at("run") + kData,
        "checkpoint inspect " + at("run"),
        "checkpoint verify " + at("run"),
        "checkpoint verify --json " + at("run"),
        "checkpoint export " + at("run") + " --output " + at("model"),
        "data inspect " + shards,
        "data verify " + shards,
        "data index " + shards,
        "data convert csv --input " + at("t.csv") + " --output " + at("again"),
        std::string("data benchmark --seconds 0.01 --data synthetic:4x4x1,4,64"),
        std::string("doctor --quick --json"),
        std::string("allreduce-bench --devices cpu:0,cpu:0 --min-bytes 64 --max-bytes 64 "
                    "--iterations 2")}) {
    SCOPED_TRACE(arguments);
    const Result result = shell("$L " + arguments + " > /dev/full");
    EXPECT_THAT(result.errors, HasSubstr("[standard output] expected "));
    EXPECT_THAT(result.errors, HasSubstr("got No space left on device\n"));
    // Another error takes precedence.
    if (!arguments.starts_with("doctor")) {
      EXPECT_EQ(result.status, 3);
      expect_lost(result, "got No space left on device");
    }
  }
}

TEST_F(LostOutput, OfHelpEndsWithSigpipe) {
  const std::string pipe = at("pipe-of-help");
  const Result result = shell("mkfifo " + pipe + "; exec 3<>" + pipe + " 4>" + pipe +
                              " 3<&-; $L train --help >&4; echo $?");
  EXPECT_EQ(result.output, fmt::format("{}\n", 128 + SIGPIPE));
  EXPECT_EQ(result.errors, "");
}

TEST_F(LostOutput, IsIgnoredIfNothingIsPrinted) {
  const Result result = shell("$L predict --checkpoint " + at("run") + kData + "--quiet --output " +
                              at("p.csv") + " >&-");
  EXPECT_EQ(result.status, 0) << result.errors;
}

TEST_F(LostOutput, DoesNotEndTraining) {
  for (const char* format : {"text", "json"}) {
    const std::string run = fmt::format("full-{}", format);
    const Result result = shell(
        fmt::format("$L {} --log-every 1 --log-format {} > /dev/full", training(run), format));
    EXPECT_EQ(result.status, 3);
    expect_lost(result, "got No space left on device");
    expect_trained(run);
  }
}

TEST_F(LostOutput, ClosedByReaderDoesNotEndTraining) {
  const Result result = shell("{ $L " + training("pipe") + " --log-every 1; echo $? > " +
                              at("status") + "; } | head -n 1");
  EXPECT_EQ(checkpoint::contents_of(at("status")), "3\n");
  EXPECT_EQ(std::ranges::count(result.output, '\n'), 1);
  expect_lost(result, "got Broken pipe");
  expect_trained("pipe");
}

TEST_F(LostOutput, UnreadDoesNotEndTraining) {
  // 80 kB of events exceed the capacity of a pipe.
  Process process(lockstep(training("blocked") +
                           " --log-every 1 --log-format json --epochs 20 --stall-timeout 2"));
  ASSERT_TRUE(Watched(process.id()).ends_within(100));
  const Result result = process.finish();
  EXPECT_EQ(result.status, 3);
  expect_lost(result, "got a reader that read nothing for 1 s");
  EXPECT_TRUE(std::filesystem::exists(at("blocked") + "/step-00000800/MANIFEST.json"));
}

// Otherwise the first opened files (the lock, a checkpoint, a shard) would become the standard
// streams.
TEST_F(LostOutput, ToClosedDescriptorsIsDropped) {
  EXPECT_EQ(shell("$L " + training("closed") + " --log-every 1 <&- >&- 2>&-").status, 3);
  expect_trained("closed");
  EXPECT_THAT(checkpoint::contents_of(at("closed") + "/.lock"),
              ::testing::MatchesRegex("process [0-9]+ on [^\n]*\n?"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(at("closed")))
    if (entry.is_regular_file()) {
      EXPECT_THAT(checkpoint::contents_of(entry.path()), Not(HasSubstr("lockstep: ")))
          << entry.path();
    }
  EXPECT_EQ(run_lockstep("checkpoint verify " + at("closed")).status, 0);
  EXPECT_EQ(shell("$L " + training("quiet") + " --quiet <&- >&- 2>&-").status, 0);
}

// An error that cannot be printed must not cause another error.
TEST_F(LostOutput, OfErrorsKeepsStatus) {
  EXPECT_EQ(shell("$L train --no-such-option 2> /dev/full").status, 2);
  EXPECT_EQ(shell("$L checkpoint verify " + at("nothing") + " > /dev/full 2>&1").status, 3);
  EXPECT_EQ(shell("$L " + training("errors") + " > /dev/full 2>&1").status, 3);
  expect_trained("errors");
}

TEST_F(LostOutput, AtFileSizeLimitDoesNotEndTraining) {
  const Result result =
      shell("ulimit -f 100; $L " + training("limit") +
            " --log-every 1 --epochs 50 --save-every 100000 --log-format json > " + at("log"));
  EXPECT_EQ(result.status, 3);
  expect_lost(result, "got File too large");
  EXPECT_TRUE(std::filesystem::exists(at("limit") + "/step-00002000/MANIFEST.json"));
}

// ---- Unreadable files

/// Runs the program without permission to read the scratch directory.
Result without_rights(const std::string& arguments) {
  if (::geteuid() != 0)
    return shell("chmod 000 \"$D\"; $L " + arguments + "; s=$?; chmod 700 \"$D\"; exit $s");
  return shell("cd /; setpriv --reuid 65534 --regid 65534 --clear-groups $L " + arguments);
}

TEST_F(LostOutput, IsDistinctFromUnreadableFiles) {
  ::setenv("D", scratch_->path().c_str(), 1);
  std::filesystem::permissions(scratch_->path(), std::filesystem::perms::owner_all);
  for (const std::string& arguments :
       {"evaluate --checkpoint " + at("run") + kData,
        "evaluate --checkpoint " + at("run") + "/step-00000003" + kData,
        "checkpoint inspect " + at("run"), "checkpoint verify " + at("run"),
        "checkpoint export " + at("run") + " --output /dev/null.safetensors",
        "train --model " + at("net.json") + kData,
        "train --model mlp --init-from " + at("run") + kData,
        "train --model mlp --data " + at("shards"), "train --model mlp --data csv:" + at("t.csv"),
        "train --model mlp --steps 1 --checkpoint-dir " + at("other") + kData,
        "train --model mlp --steps 1 --summary-dir " + at("other") + kData,
        "data inspect " + at("shards"), "data verify " + at("shards") + "/a.tfrecord"}) {
    const Result result = without_rights(arguments);
    EXPECT_THAT(result.status, ::testing::AnyOf(2, 3)) << arguments << "\n" << result.errors;
    EXPECT_THAT(result.errors, ContainsRegex("^lockstep: error: \\[.*\\] [^\n]*\n$")) << arguments;
    EXPECT_THAT(result.errors, Not(HasSubstr("filesystem error"))) << arguments;
  }
  ::unsetenv("D");
}

}  // namespace
}  // namespace lockstep::inline v0::apps
