// Several ranks, as threads: one checkpoint, comparison of replicas, and failures of one rank that
// all ranks report.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/system/process.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/workspace.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;
using allreduce::Communicator;
using allreduce::run_ranks;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kRanks = 3;

class CheckpointRanks : public ::testing::Test {
 protected:
  fs::path path() const { return scratch_.path() / "run"; }
  CheckpointOptions options() const { return {path(), 3, std::chrono::milliseconds(0)}; }

  /// Every rank saves; each must throw the same. Returns that message.
  std::string refusal(const std::function<void(const Communicator&)>& body) {
    std::vector<std::string> messages(kRanks);
    run_ranks(kRanks, [&](const Communicator& rank) {
      messages[static_cast<std::size_t>(rank.rank())] = checkpoint_error([&] { body(rank); });
    });
    for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
    return messages.front();
  }

  ScratchDirectory scratch_;
};

TEST_F(CheckpointRanks, SaveOneCheckpointAndNothingElse) {
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints(options(), rank);
    checkpoints.prepare(checkpoint_bytes(replica.arrays()));
    EXPECT_EQ(checkpoints.save(replica.arrays(), at_step(8)), path() / "step-00000008");
  });
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointRanks, WriteTheSameFilesAsOneRank) {
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(8));
  });
  SmallReplica replica(4);
  const fs::path single =
      CheckpointDirectory({scratch_.path() / "single"}, alone()).save(replica.arrays(), at_step(8));
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile, kManifestName})
    EXPECT_EQ(contents_of(path() / "step-00000008" / file), contents_of(single / file)) << file;
}

TEST_F(CheckpointRanks, AllReceiveWhatTheChiefRestores) {
  SmallReplica saved(4);
  CheckpointDirectory(options(), alone()).save(saved.arrays(), at_step(8));
  CheckpointDirectory(options(), alone()).save(saved.arrays(), at_step(9));
  fs::remove(path() / "step-00000009" / kStateFile);
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica fresh(static_cast<float>(100 * rank.rank()));
    // Only the chief sees the directory.
    CheckpointDirectory checkpoints({rank.rank() == 0 ? path() : scratch_.path() / "elsewhere"},
                                    rank);
    const auto restored = checkpoints.restore(fresh.arrays(), Resume::require);
    ASSERT_TRUE(restored.has_value());
    EXPECT_EQ(restored->path, path() / "step-00000008");
    EXPECT_EQ(restored->state.step, 8);
    EXPECT_TRUE(fresh.holds_same_as(saved));
    ASSERT_EQ(checkpoints.skipped().size(), 1u);
    EXPECT_THAT(checkpoints.skipped().front(),
                HasSubstr("step-00000009/state.json] expected a file of "));
  });
}

TEST_F(CheckpointRanks, AllReceiveTheTokenizerThatTheChiefAloneWrites) {
  for (const VerifyCheckpoint verify : {VerifyCheckpoint::full, VerifyCheckpoint::hash})
    run_ranks(kRanks, [&](const Communicator& rank) {
      SmallReplica replica(4);
      TrainingState state = at_step(8);
      if (rank.rank() == 0) state.tokenizer = std::make_shared<const std::string>("{}\n");
      CheckpointOptions chosen = options();
      chosen.verify = verify;
      CheckpointDirectory checkpoints(chosen, rank);
      checkpoints.save(replica.arrays(), state);
      const auto restored = checkpoints.restore(replica.arrays(), Resume::require);
      ASSERT_TRUE(restored.has_value());
      ASSERT_NE(restored->state.tokenizer, nullptr);
      EXPECT_EQ(*restored->state.tokenizer, "{}\n");
    });
}

TEST_F(CheckpointRanks, AllReportThatThereIsNoCheckpoint) {
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica fresh;
    EXPECT_FALSE(CheckpointDirectory(options(), rank).restore(fresh.arrays()).has_value());
  });
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica fresh;
    CheckpointDirectory(options(), rank).restore(fresh.arrays(), Resume::require);
  });
  EXPECT_THAT(message, HasSubstr("expected a complete checkpoint; there is none"));
}

TEST_F(CheckpointRanks, AReplicaThatDiffersIsNamedOnAll) {
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica replica(4);
    if (rank.rank() == 2)
      replica.v()[model::ParameterTable(SmallReplica::default_parameters())
                      .find("dense/kernel")
                      ->offset] += 1;
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(8));
  });
  EXPECT_THAT(message, HasSubstr(fmt::format("[checkpoint] expected identical replicas on all "
                                             "ranks; rank 2 on {} has a different v/dense/kernel "
                                             "in optimizer.safetensors (",
                                             host_name())));
  EXPECT_THAT(names_in(path()), IsEmpty());
}

TEST_F(CheckpointRanks, AReplicaOfAnotherModelIsNamedOnAll) {
  const std::string message = refusal([&](const Communicator& rank) {
    auto parameters = SmallReplica::default_parameters();
    if (rank.rank() == 1) parameters.push_back({"zeta", {1}, 0, 0, true, {}});
    SmallReplica replica(4, parameters);
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(8));
  });
  EXPECT_THAT(message, HasSubstr("has a different zeta in model.safetensors ("));
  EXPECT_THAT(names_in(path()), IsEmpty());
}

TEST_F(CheckpointRanks, ARankAtAnotherStepIsNamedOnAll) {
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory(options(), rank).save(replica.arrays(), at_step(rank.rank() == 1 ? 7 : 8));
  });
  EXPECT_EQ(message,
            fmt::format(
                "[checkpoint] expected identical replicas on all ranks; rank 1 on {} is at step 7, "
                "epoch 0, seed 1, global batch 64, "
                "float32, the chief at step 8, epoch 0, seed 1, global batch 64, float32",
                host_name()));
}

TEST_F(CheckpointRanks, MayHaveDifferentConfigurations) {
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica replica(4);
    TrainingState state = at_step(8);
    (*state.configuration)["devices"] = fmt::format("gpu:{}", rank.rank());
    EXPECT_NO_THROW(CheckpointDirectory(options(), rank).save(replica.arrays(), state));
  });
}

/// Names that were created in a directory since the construction of this object.
class MadeIn {
 public:
  explicit MadeIn(const fs::path& directory)
      : descriptor_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(descriptor_, directory.c_str(), IN_CREATE | IN_MOVED_TO), 0);
  }
  MadeIn(const MadeIn&) = delete;
  MadeIn& operator=(const MadeIn&) = delete;
  ~MadeIn() { ::close(descriptor_); }

  std::vector<std::string> names() const {
    alignas(inotify_event) std::array<char, 65536> events{};
    const ssize_t bytes = ::read(descriptor_, events.data(), events.size());
    for (ssize_t at = 0; at < bytes;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(events.data() + at);
      names_.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return names_;
  }

 private:
  int descriptor_;
  mutable std::vector<std::string> names_;
};

/// Sets TMPDIR for the lifetime of the object.
class TemporaryFilesIn {
 public:
  explicit TemporaryFilesIn(const fs::path& path) { ::setenv("TMPDIR", path.c_str(), 1); }
  TemporaryFilesIn(const TemporaryFilesIn&) = delete;
  TemporaryFilesIn& operator=(const TemporaryFilesIn&) = delete;
  ~TemporaryFilesIn() { ::unsetenv("TMPDIR"); }
};

TEST_F(CheckpointRanks, FailOnAllIfOneFailsAndKeepTheEarlierCheckpoint) {
  const fs::path temporary = scratch_.path() / "temporary";
  fs::create_directory(temporary);
  const TemporaryFilesIn here(temporary);
  CheckpointOptions full = options();
  full.verify = VerifyCheckpoint::full;
  const std::string message = refusal([&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints(full, rank);
    checkpoints.save(replica.arrays(), at_step(8));
    rank.barrier();
    if (rank.rank() == 1) fs::remove(temporary);
    rank.barrier();
    checkpoints.save(replica.arrays(), at_step(9));
  });
  EXPECT_THAT(message, HasSubstr(fmt::format(
                           "[checkpoint] expected every rank to succeed; rank 1 on {} failed: [{}",
                           host_name(), (temporary / worker_temporary_prefix(1)).string())));
  EXPECT_THAT(message, HasSubstr("] expected to create the directory; No such file or directory"));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointRanks, CompareTheirHashesIfANodeIsFullLater) {
  const fs::path temporary = scratch_.path() / "temporary";
  fs::create_directory(temporary);
  const TemporaryFilesIn here(temporary);
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints(options(), rank);
    checkpoints.save(replica.arrays(), at_step(8));
    rank.barrier();
    if (rank.rank() == 1) fs::remove(temporary);
    rank.barrier();
    checkpoints.save(replica.arrays(), at_step(9));
  });
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008", "step-00000009"));
}

TEST_F(CheckpointRanks, FailOnAllIfTheChiefCannotCreateTheDirectory) {
  overwrite(path(), "a file");
  const std::string message =
      refusal([&](const Communicator& rank) { CheckpointDirectory(options(), rank).prepare(1); });
  EXPECT_THAT(message, HasSubstr("rank 0 on "));
  EXPECT_THAT(
      message,
      HasSubstr("expected a directory for checkpoints that can be written; Not a directory"));
}

/// The other ranks write to storage of their node, never to the checkpoint directory, whose file
/// events are checked.
TEST_F(CheckpointRanks, WriteToTheirNodesInFull) {
  const fs::path temporary = scratch_.path() / "temporary";
  fs::create_directory(temporary);
  fs::create_directory(path());
  const TemporaryFilesIn here(temporary);
  const MadeIn made_here(temporary);
  const MadeIn made_in_directory(path());
  CheckpointOptions full = options();
  full.verify = VerifyCheckpoint::full;
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints(full, rank);
    checkpoints.save(replica.arrays(), at_step(8));
    EXPECT_EQ(checkpoints.verification(), VerifyCheckpoint::full);
  });
  EXPECT_THAT(made_here.names(), Contains(StartsWith(worker_temporary_prefix(1))));
  EXPECT_THAT(made_here.names(), Contains(StartsWith(worker_temporary_prefix(2))));
  EXPECT_THAT(made_in_directory.names(), Each(Not(StartsWith(".workertemp_"))));
  EXPECT_THAT(names_in(temporary), IsEmpty());
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointRanks, CompareHashesOrNothingAndWriteNothing) {
  const fs::path temporary = scratch_.path() / "temporary";
  fs::create_directory(temporary);
  const TemporaryFilesIn here(temporary);
  const MadeIn made_here(temporary);
  for (const VerifyCheckpoint verify : {VerifyCheckpoint::hash, VerifyCheckpoint::none}) {
    CheckpointOptions others_hash = options();
    others_hash.verify = verify;
    const std::string message = refusal([&](const Communicator& rank) {
      SmallReplica same(4);
      CheckpointDirectory checkpoints(others_hash, rank);
      checkpoints.save(same.arrays(), at_step(8));
      SmallReplica other(rank.rank() == 2 ? 5.0F : 4.0F);
      checkpoints.save(other.arrays(), at_step(9));
    });
    const bool compares = verify == VerifyCheckpoint::hash;
    EXPECT_THAT(message, compares
                             ? HasSubstr("expected identical replicas on all ranks; rank 2 on ")
                             : HasSubstr("no error"));
    EXPECT_EQ(fs::exists(path() / "step-00000009"), !compares);
  }
  EXPECT_THAT(made_here.names(), IsEmpty());
}

TEST_F(CheckpointRanks, CompareHashesIfLargeOrIfANodeHasNoSpace) {
  const auto choice = [&](std::uint64_t bytes) {
    VerifyCheckpoint chosen = VerifyCheckpoint::automatic;
    run_ranks(kRanks, [&](const Communicator& rank) {
      CheckpointDirectory checkpoints(options(), rank);
      // The value of the chief is used; otherwise ranks could make different choices.
      checkpoints.prepare(rank.rank() == 0 ? bytes : 1);
      if (rank.rank() == 2) chosen = checkpoints.verification();
    });
    return chosen;
  };
  EXPECT_EQ(choice(1000), VerifyCheckpoint::full);
  EXPECT_EQ(choice(kMaxFullBytes + 1), VerifyCheckpoint::hash);
  CheckpointOptions full = options();
  full.verify = VerifyCheckpoint::full;
  const TemporaryFilesIn here(scratch_.path());
  const std::uint64_t free = free_bytes(scratch_.path());
  // One more checkpoint fits, two do not.
  const std::string message = refusal(
      [&](const Communicator& rank) { CheckpointDirectory(full, rank).prepare(free / 4 * 3); });
  EXPECT_THAT(
      message,
      HasSubstr("bytes per rank on local storage of each node (--verify-checkpoint full), got "));
  EXPECT_THAT(message, HasSubstr(" bytes free for 2 ranks, "));
}

TEST_F(CheckpointRanks, RejectsAChiefThatDoesNotSeeTheNewestCheckpoint) {
  const auto resume = [&](Resume how) {
    return refusal([&](const Communicator& rank) {
      SmallReplica replica;
      CheckpointDirectory({rank.rank() == 2 ? path() : scratch_.path() / "moved"}, rank)
          .restore(replica.arrays(), how);
    });
  };
  SmallReplica saved(4);
  CheckpointDirectory(options(), alone()).save(saved.arrays(), at_step(999));
  CheckpointDirectory(options(), alone()).save(saved.arrays(), at_step(1000));
  const std::string expected =
      "[resume] expected rank 0, which reads checkpoints, to have the newest; ";
  const std::string host = host_name();
  for (const Resume how : {Resume::automatic, Resume::require}) {
    EXPECT_THAT(resume(how), HasSubstr(expected));
    EXPECT_THAT(resume(how), HasSubstr(fmt::format("; rank 2 on {} has step-00001000 in ", host)));
    EXPECT_THAT(resume(how), HasSubstr(fmt::format(" and rank 0 on {} has none", host)));
  }
  EXPECT_EQ(resume(Resume::never), "no error");
  // An older checkpoint on rank 0 is an error too.
  CheckpointDirectory({scratch_.path() / "moved"}, alone()).save(saved.arrays(), at_step(500));
  EXPECT_THAT(resume(Resume::automatic),
              HasSubstr(fmt::format(" and rank 0 on {} has step-00000500", host)));
}

TEST_F(CheckpointRanks, ThatDoNotSeeTheDirectoryUseTheirHostsTemporaryOne) {
  const fs::path temporary = scratch_.path() / "temporary";
  fs::create_directory(temporary);
  const TemporaryFilesIn here(temporary);
  fs::create_directory(temporary / fmt::format(".workertemp_1-{}-{}-999999999-1-x", host_name(),
                                               process_namespace()));
  run_ranks(kRanks, [&](const Communicator& rank) {
    SmallReplica replica(4);
    CheckpointDirectory checkpoints({rank.rank() == 0 ? path() : scratch_.path() / "elsewhere"},
                                    rank);
    checkpoints.save(replica.arrays(), at_step(8));
  });
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
  EXPECT_THAT(names_in(temporary), IsEmpty());
  EXPECT_FALSE(fs::exists(scratch_.path() / "elsewhere"));
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
