// Trainings with checkpoints on a disk that is slow, temporarily full or without locks, and with
// arbitrary bytes in paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/apps/program.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/paths.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::ScratchDirectory;
using ::testing::HasSubstr;

class TrainingOnFaultyDisk : public ::testing::Test {
 protected:
  fs::path run_path() const { return scratch_.path() / "run"; }

  /// A training of a few small steps. The `faults` of disk_faults ("FSYNC_MS=2000") affect paths
  /// that contain `under`.
  std::vector<std::string> train(const std::string& options, const std::string& under,
                                 const std::vector<std::string>& faults) const {
    std::vector<std::string> command = {"env", "LD_PRELOAD=" LOCKSTEP_DISK_FAULTS,
                                        "LOCKSTEP_DISK_UNDER=" + under};
    for (const std::string& fault : faults) command.push_back("LOCKSTEP_DISK_" + fault);
    const std::vector<std::string> program = lockstep(
        "train --model mlp:8 --data synthetic:4x4x1,4,6400 --global-batch 16 --data-threads 1 "
        "--log-format json "
        "--checkpoint-dir " +
        run_path().string() + " " + options);
    command.insert(command.end(), program.begin(), program.end());
    return command;
  }
  bool verifies() const {
    return run_lockstep("checkpoint verify " + run_path().string()).status == 0;
  }

  ScratchDirectory scratch_;
};

TEST_F(TrainingOnFaultyDisk, FailsIfSlowerThanStallTimeout) {
  const Result result = run(mpirun(2, train("--steps 8 --stall-timeout 2 --start-timeout 60",
                                            "model.safetensors", {"FSYNC_MS=5000"})));
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(verifies());
}

// As the kernel kills a rank when memory is exhausted.
TEST_F(TrainingOnFaultyDisk, KeepsEarlierCheckpointIfKilledWhileSaving) {
  ASSERT_EQ(run(mpirun(2, train("--steps 8", "model.safetensors", {}))).status, 0);
  for (const std::size_t killed : {0U, 1U}) {
    SCOPED_TRACE(killed);
    Process process(
        mpirun(2, train("--steps 16 --log-every 1", "model.safetensors", {"FSYNC_MS=60000"})));
    ASSERT_TRUE(process.wait_for(R"("event":"step","step":16)"));
    // The chief is saving, where fsync takes a minute; the other rank is saving or about to.
    const auto is_saving = [&] {
      return std::ranges::any_of(
          fs::directory_iterator(run_path()), [](const fs::directory_entry& entry) {
            return entry.path().filename().string().find(".tmp-") != std::string::npos;
          });
    };
    while (!is_saving()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<pid_t> ranks = process.children();
    ASSERT_EQ(ranks.size(), 2U);
    const Watched other(ranks[1 - killed]);
    ::kill(ranks[killed], SIGKILL);
    EXPECT_TRUE(other.ends_within(10));
    const Result result = process.finish();
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.errors, HasSubstr("[watchdog] expected every rank to stay connected; rank " +
                                         std::to_string(killed)));
    EXPECT_TRUE(verifies());
    EXPECT_EQ(checkpoint::list_checkpoints(run_path()).front().step, 8);
  }
  EXPECT_EQ(run(mpirun(2, train("--steps 16 --resume require", "model.safetensors", {}))).status,
            0);
}

using LongTrainingOnFaultyDisk = TrainingOnFaultyDisk;

TEST_F(LongTrainingOnFaultyDisk, SavesAndRestoresSlowly) {
  const Result saved = run(mpirun(
      2, train("--steps 800 --stall-timeout 3 --start-timeout 60", ".tmp-", {"FSYNC_MS=2000"})));
  EXPECT_EQ(saved.status, 0) << saved.errors;
  const Result alone = run(train("--steps 804 --stall-timeout 3", ".tmp-", {"FSYNC_MS=4000"}));
  EXPECT_EQ(alone.status, 0) << alone.errors;
  const Result resumed =
      run(mpirun(2, train("--steps 808 --resume require --stall-timeout 3 --start-timeout 60",
                          ".safetensors", {"READ_MS=1500"})));
  EXPECT_EQ(resumed.status, 0) << resumed.errors;
  EXPECT_TRUE(verifies());
}

TEST_F(TrainingOnFaultyDisk, ContinuesAfterFullDisk) {
  const fs::path full = scratch_.path() / "full";
  Process process(
      train("--steps 2000000 --save-every 50 --keep 2", run_path(), {"FULL=" + full.string()}));
  ASSERT_TRUE(process.wait_for(R"("event":"checkpoint")"));
  std::ofstream(full).put('x');
  // An epoch end at which saving fails.
  const auto newest = [&] { return checkpoint::list_checkpoints(run_path()).front().step; };
  std::int64_t before = newest();
  for (int same = 0; same < 20; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (newest() != before) same = 0;
    before = newest();
  }
  fs::remove(full);
  while (newest() == before) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  process.kill(SIGTERM);
  const Result result = process.finish();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.errors;
  EXPECT_THAT(result.errors,
              HasSubstr(" was not saved; the training continues, and saves again when the next "
                        "checkpoint is due: "));
  EXPECT_TRUE(verifies());
}

TEST_F(TrainingOnFaultyDisk, FailsIfFullAtLastSave) {
  const fs::path full = scratch_.path() / "full";
  ASSERT_EQ(run(train("--steps 8", run_path(), {"FULL=" + full.string()})).status, 0);
  const std::string earlier =
      checkpoint::contents_of(run_path() / "step-00000008" / "MANIFEST.json");
  // Only the model exceeds the space: the small test file at the start fits.
  std::ofstream(full).put('x');
  const Result result = run(train("--steps 16", "model.safetensors", {"FULL=" + full.string()}));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.errors, HasSubstr("No space left on device"));
  EXPECT_EQ(checkpoint::contents_of(run_path() / "step-00000008" / "MANIFEST.json"), earlier);
  EXPECT_TRUE(verifies());
}

TEST_F(TrainingOnFaultyDisk, RejectsSecondTrainingWithoutLocks) {
  const std::string warning =
      ": its file system does not support locks (No locks available); using a lease to keep other "
      "runs out";
  Process first(train("--steps 2000000 --save-every 50", run_path(), {"NO_LOCKS=1"}));
  ASSERT_TRUE(first.wait_for(R"("event":"checkpoint")"));
  const Result second =
      run(train("--steps 8 --resume never --overwrite", run_path(), {"NO_LOCKS=1"}));
  EXPECT_EQ(second.status, 3);
  EXPECT_THAT(second.errors, HasSubstr("expected exclusive use of the directory; process "));
  first.kill(SIGTERM);
  const Result ended = first.finish();
  EXPECT_EQ(ended.status, 128 + SIGTERM) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr(warning));
  const Result third =
      run(train("--steps 8 --resume never --overwrite", run_path(), {"NO_LOCKS=1"}));
  EXPECT_EQ(third.status, 0) << third.errors;
  EXPECT_TRUE(verifies());
}

TEST_F(TrainingOnFaultyDisk, AcceptsArbitraryBytesInPaths) {
  const std::string path = scratch_.path() / "d\xff";
  fs::create_directory(path);
  std::ofstream(path + "/t.csv") << "size,weight,label\n1,2,plum\n3,4,apple\n5,6,plum\n7,8,apple\n";
  const std::string train = "train --model mlp:4 --learning-rate 0.01 --data csv:" + path +
                            "/t.csv:label=label --global-batch 2 --checkpoint-dir " + path +
                            "/run ";
  const auto on = [](int ranks, const std::string& arguments) {
    return run(ranks == 1 ? lockstep(arguments + " --log-format text")
                          : mpirun(ranks, arguments + " --log-format json"));
  };
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const Result first = on(ranks, train + "--epochs 1 --resume never --overwrite");
    EXPECT_EQ(first.status, 0) << first.errors;
    const Result resumed = on(ranks, train + "--epochs 2 --resume require");
    EXPECT_EQ(resumed.status, 0) << resumed.errors;
    EXPECT_THAT(resumed.output + resumed.errors, HasSubstr("step-00000002"));
    const Result evaluated =
        on(ranks, "evaluate --data csv:" + path + "/t.csv:label=label,like=" + path +
                      "/t.csv --checkpoint " + path + "/run");
    EXPECT_EQ(evaluated.status, 0) << evaluated.errors;
  }
  EXPECT_EQ(run_lockstep("checkpoint verify " + path + "/run").status, 0);
  EXPECT_EQ(run_lockstep("checkpoint inspect --json " + path + "/run").status, 0);
  const Result from = run_lockstep("train --model mlp:4 --data csv:" + path +
                                   "/t.csv:label=label --global-batch 2 " +
                                   "--epochs 1 --quiet --init-from " + path + "/run");
  EXPECT_EQ(from.status, 0) << from.errors;
}

}  // namespace
}  // namespace lockstep::inline v0::apps
