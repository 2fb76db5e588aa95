// lockstep doctor on this machine, with injected faults.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/apps/doctor_program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

using checkpoint::ScratchDirectory;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kQuick = "doctor --quick --json ";

/// Runs `lockstep doctor` in a shell after the command `before`.
Examined examine_after(const std::string& before, const std::string& options = "") {
  return Examined(run({"sh", "-c", before + " exec " + LOCKSTEP_PROGRAM + " " + kQuick + options}));
}

TEST(Doctor, PrintsTableWithoutProblems) {
  const Result result = run_lockstep("doctor --quick");
  EXPECT_EQ(result.status, 0) << result.output << result.errors;
  EXPECT_THAT(result.output, testing::StartsWith("lockstep doctor: 1 rank on 1 host\n\ncheck "));
  EXPECT_THAT(
      result.output,
      AllOf(ContainsRegex("\nversions +ok +lockstep "), ContainsRegex("\nnetwork +ok +one host"),
            ContainsRegex("\nroutes +(ok|warning) +in-process [0-9.]+ GB/s"),
            ContainsRegex("\nnothing is wrong, [0-9]+ warnings?; [0-9.]+ s\n$")));
}

TEST(Doctor, LeavesCheckpointFolderUnchanged) {
  const ScratchDirectory scratch;
  const Examined examined(run_lockstep(kQuick + "--data synthetic:4x4x1,2,8 --checkpoint-dir " +
                                       (scratch.path() / "run").string()));
  EXPECT_EQ(examined.status(), 0) << examined.report();
  EXPECT_EQ(examined.level_of("data"), "ok");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(DoctorFault, TooFewOpenFiles) {
  EXPECT_THAT(only_problem(examine_after("ulimit -n 100;"), "open-files"),
              AllOf(HasSubstr("may open 100 files, and a training may need "),
                    HasSubstr(" -> the hard limit is 100: ")));
  EXPECT_THAT(only_problem(examine_after("ulimit -Sn 100;"), "open-files"),
              HasSubstr(" -> ulimit -n 4096 in the shell"));
}

TEST(DoctorFault, CheckpointFolderNotCreatable) {
  const ScratchDirectory scratch;
  std::ofstream(scratch.path() / "file") << "in the way";
  EXPECT_THAT(only_problem(examine_after("", "--checkpoint-dir " +
                                                 (scratch.path() / "file" / "run").string()),
                           "checkpoints"),
              AllOf(HasSubstr("/file is not a folder"),
                    HasSubstr(" -> set --checkpoint-dir to a folder that ")));
}

TEST(DoctorFault, MissingTemporaryFolder) {
  EXPECT_THAT(only_problem(examine_after("TMPDIR=/nowhere"), "temporary-files"),
              AllOf(HasSubstr("/nowhere does not exist on "),
                    HasSubstr(" -> set TMPDIR to a folder with free space")));
}

TEST(DoctorFault, MissingData) {
  EXPECT_THAT(only_problem(examine_after("", "--data /nowhere/train.tfrecord"), "data"),
              AllOf(HasSubstr("[/nowhere/train.tfrecord] expected "),
                    HasSubstr(" -> copy the files to this path on every host")));
}

TEST(DoctorFault, GpuWithBadMemory) {
  const Examined examined = examine_after("LD_LIBRARY_PATH=" LOCKSTEP_PRETEND_NVML_FOLDER);
  EXPECT_THAT(
      only_problem(examined, "devices"),
      HasSubstr("(GPU-sick) has 7 uncorrected ECC errors -> end its processes and reset it: "));
}

TEST(DoctorFault, FullDisk) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to mount a small disk";
  const ScratchDirectory scratch;
  const std::string folder = scratch.path().string();
  const std::string mount = "mount -t tmpfs -o size=1m none " + folder;
  if (run({"unshare", "--mount", "sh", "-c", mount}).status != 0)
    GTEST_SKIP() << "root may not mount here";
  const Examined examined(
      run({"unshare", "--mount", "sh", "-c",
           mount + " && " + LOCKSTEP_PROGRAM + " " + kQuick + "--checkpoint-dir " + folder +
               "; status=$?; ls -A " + folder + " >&2; exit $status"}));
  EXPECT_EQ(examined.errors(), "") << "nothing remains there";
  EXPECT_THAT(
      only_problem(examined, "checkpoints"),
      HasSubstr(
          "cannot be written: No space left on device -> set --checkpoint-dir to a folder that "));
}

TEST(DoctorCommandLine, ListsItsExitStatuses) {
  EXPECT_THAT(run_lockstep("doctor --help").output, HasSubstr("Exit status: 0 nothing is wrong"));
}

TEST(DoctorFault, UnusableRoute) {
  EXPECT_THAT(
      only_problem(examine_after("", "--allreduce ring"), "routes"),
      AllOf(HasSubstr("ring does not work here: "), HasSubstr(" -> train with --allreduce auto")));
}

}  // namespace
}  // namespace lockstep::inline v0::apps
