// Several ranks, as threads: one checkpoint, replicas compared, and a failure on one that reaches all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "strategy/checkpoint_directory.h"
#include "strategy/checkpoint_workspace.h"
#include "tests/strategy/checkpoint_fixture.h"
#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

namespace fs = std::filesystem;
using allreduce::Communicator;
using allreduce::Route;
using allreduce::run_ranks;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRanks = 3;

class CheckpointRanks : public ::testing::Test {
 protected:
  fs::path path() const { return scratch_.path() / "run"; }
  CheckpointOptions options() const { return {path(), 3, std::chrono::milliseconds(0)}; }

  /// Every rank saves; each must throw the same. Returns that message.
  std::string refusal(const std::function<void(const Communicator&)>& body) {
    std::vector<std::string> messages(kRanks);
    run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
      messages[static_cast<std::size_t>(rank.rank())] = checkpoint_error([&] { body(rank); });
    });
    for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
    return messages.front();
  }

  ScratchDirectory scratch_;
};

TEST_F(CheckpointRanks, SaveOneCheckpointAndLeaveNothingElse) {
  run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints(options(), rank);
    checkpoints.prepare(checkpoint_bytes(replica.arrays()));
    EXPECT_EQ(checkpoints.save(replica.arrays(), at_step(8)), path() / "step-00000008");
  });
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointRanks, HoldTheSameFileAsOneRankAlone) {
  run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(8));
  });
  SmallReplica replica(4);
  const fs::path single = CheckpointDirectory({scratch_.path() / "single"}, alone()).save(replica.arrays(), at_step(8));
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile, kManifestName})
    EXPECT_EQ(contents_of(path() / "step-00000008" / file), contents_of(single / file)) << file;
}

TEST_F(CheckpointRanks, AllReceiveWhatTheChiefRestores) {
  SmallReplica saved(4);
  CheckpointDirectory(options(), alone()).save(saved.arrays(), at_step(8));
  CheckpointDirectory(options(), alone()).save(saved.arrays(), at_step(9));
  fs::remove(path() / "step-00000009" / kStateFile);
  run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
    SmallReplica fresh(static_cast<float>(100 * rank.rank()));
    // Only the chief sees the directory.
    CheckpointDirectory checkpoints({rank.rank() == 0 ? path() : scratch_.path() / "elsewhere"}, rank);
    const auto restored = checkpoints.restore(fresh.arrays(), Resume::must);
    ASSERT_TRUE(restored.has_value());
    EXPECT_EQ(restored->path, path() / "step-00000008");
    EXPECT_EQ(restored->state.step, 8);
    EXPECT_TRUE(fresh.holds_same_as(saved));
    ASSERT_EQ(checkpoints.skipped().size(), 1u);
    EXPECT_THAT(checkpoints.skipped().front(), HasSubstr("step-00000009/state.json] needed a file of "));
  });
}

TEST_F(CheckpointRanks, AllHearThatThereIsNoCheckpoint) {
  run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
    SmallReplica fresh;
    EXPECT_FALSE(CheckpointDirectory(options(), rank).restore(fresh.arrays()).has_value());
  });
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica fresh;
    CheckpointDirectory(options(), rank).restore(fresh.arrays(), Resume::must);
  });
  EXPECT_THAT(message, HasSubstr("needed a complete checkpoint; there is none"));
}

TEST_F(CheckpointRanks, AReplicaThatDiffersIsNamedOnAll) {
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica replica(4);
    if (rank.rank() == 2)
      replica.v()[model::ParameterTable(SmallReplica::default_parameters()).find("dense/kernel")->offset] += 1;
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(8));
  });
  EXPECT_THAT(message,
              HasSubstr(fmt::format(
                  "[checkpoint] needed identical replicas on all ranks; rank 2 on {} has another v/dense/kernel in "
                  "optimizer.safetensors (",
                  device::host_name())));
  EXPECT_THAT(names_in(path()), IsEmpty());
}

TEST_F(CheckpointRanks, AReplicaOfAnotherModelIsNamedOnAll) {
  const std::string message = refusal([&](const Communicator& rank) {
    auto parameters = SmallReplica::default_parameters();
    if (rank.rank() == 1) parameters.push_back({"zeta", {1}, 0, 0, true, {}});
    SmallReplica replica(4, parameters);
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(8));
  });
  EXPECT_THAT(message, HasSubstr("has another zeta in model.safetensors ("));
  EXPECT_THAT(names_in(path()), IsEmpty());
}

TEST_F(CheckpointRanks, ARankAtAnotherStepIsNamedOnAll) {
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(rank.rank() == 1 ? 7 : 8));
  });
  EXPECT_EQ(message, fmt::format("[checkpoint] needed identical replicas on all ranks; rank 1 on {} is at step 7, "
                                 "epoch 0, seed 1, global batch 64, "
                                 "float32, the chief at step 8, epoch 0, seed 1, global batch 64, float32",
                                 device::host_name()));
}

TEST_F(CheckpointRanks, WhatARankKnowsOfItselfMayDiffer) {
  run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
    SmallReplica replica(4);
    TrainingState state = at_step(8);
    (*state.configuration)["devices"] = fmt::format("gpu:{}", rank.rank());
    EXPECT_NO_THROW(CheckpointDirectory(options(), rank).save(replica.arrays(), state));
  });
}

TEST_F(CheckpointRanks, AFailureOnOneReachesAllAndKeepsTheEarlierOne) {
  const fs::path of_rank_1 = scratch_.path() / "rank-1";
  fs::create_directory(of_rank_1);
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints({rank.rank() == 1 ? of_rank_1 : path()}, rank);
    checkpoints.save(replica.arrays(), at_step(8));
    if (rank.rank() == 1) fs::remove(of_rank_1);
    checkpoints.save(replica.arrays(), at_step(9));
  });
  EXPECT_EQ(message, fmt::format("[checkpoint] needed every rank to do its part; rank 1 on {} failed: [{}] needed to "
                                 "make the directory; No such "
                                 "file or directory",
                                 device::host_name(), (of_rank_1 / worker_temporary_name(1)).string()));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointRanks, ADirectoryTheChiefCannotMakeIsRefusedOnAll) {
  overwrite(path(), "a file");
  const std::string message =
      refusal([&](const Communicator& rank) { CheckpointDirectory(options(), rank).prepare(1); });
  EXPECT_THAT(message, HasSubstr("rank 0 on "));
  EXPECT_THAT(message, HasSubstr("needed a directory for checkpoints that can be written; Not a directory"));
}

TEST_F(CheckpointRanks, RoomIsNeededForEveryRank) {
  const std::string message =
      refusal([&](const Communicator& rank) { CheckpointDirectory(options(), rank).prepare(std::uint64_t{1} << 50); });
  EXPECT_THAT(
      message,
      HasSubstr("/run] needed 3377699720527872 bytes free for a checkpoint of 3 ranks, 1125899906842624 bytes each; "));
}

/// TMPDIR for the life of the object.
class TemporaryFilesIn {
 public:
  explicit TemporaryFilesIn(const fs::path& path) { ::setenv("TMPDIR", path.c_str(), 1); }
  TemporaryFilesIn(const TemporaryFilesIn&) = delete;
  TemporaryFilesIn& operator=(const TemporaryFilesIn&) = delete;
  ~TemporaryFilesIn() { ::unsetenv("TMPDIR"); }
};

TEST_F(CheckpointRanks, ThatDoNotSeeTheDirectoryUseTheirHostsTemporaryOne) {
  const fs::path temporary = scratch_.path() / "temporary";
  fs::create_directory(temporary);
  const TemporaryFilesIn here(temporary);
  fs::create_directory(temporary / fmt::format(".workertemp_1-{}-999999999", device::host_name()));
  run_ranks(kRanks, Route::in_process, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints({rank.rank() == 0 ? path() : scratch_.path() / "elsewhere"}, rank);
    checkpoints.save(replica.arrays(), at_step(8));
  });
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
  EXPECT_THAT(names_in(temporary), IsEmpty());
  EXPECT_FALSE(fs::exists(scratch_.path() / "elsewhere"));
}

}  // namespace
}  // namespace lockstep::strategy
