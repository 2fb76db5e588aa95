// Effects of disk faults on the checkpoints of a run: power loss between any two operations, the
// order in which bytes and names become durable, and errors of single operations.
// tests/support/disk_faults.cpp is linked in.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "lockstep/base/system/process.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/workspace.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Sets an environment variable for the lifetime of the object.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

CheckpointDirectory directory_at(const fs::path& path, int keep) {
  return {{path, keep, std::chrono::milliseconds(0)}, alone()};
}

/// Two saves of one step, then one of another; each has its number as the first element of every
/// array.
void save_thrice(const fs::path& path, int keep) {
  CheckpointDirectory checkpoints = directory_at(path, keep);
  checkpoints.prepare(1);
  int number = 1;
  for (const std::int64_t step : {8, 8, 16}) {
    SmallReplica replica(static_cast<float>(++number));
    checkpoints.save(replica.arrays(), at_step(step));
  }
}

/// Runs `work` in a separate process. Returns its exit status.
int status_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

constexpr int kPowerFailed = 137;  // as disk_faults.cpp ends a process

class CheckpointDisk : public ::testing::Test {
 protected:
  fs::path path() const { return scratch_.path() / "run"; }

  /// The run restarts: the checkpoints that it finds are intact, and no earlier save is lost.
  void expect_sound(int least_number) const {
    CheckpointDirectory checkpoints = directory_at(path(), 1);
    checkpoints.prepare(1);
    for (const CheckpointInfo& info : list_checkpoints(path()))
      EXPECT_NO_THROW(check_contents(info.path, read_manifest(info.path)));
    SmallReplica replica;
    const auto restored = checkpoints.restore(replica.arrays(), Resume::require);
    EXPECT_TRUE(restored.has_value());
    EXPECT_THAT(checkpoints.skipped(), IsEmpty());
    EXPECT_GE(replica.parameters().front(), static_cast<float>(least_number));
    EXPECT_TRUE(replica.holds_same_as(SmallReplica(replica.parameters().front())));
  }

  /// Power fails after the N-th operation of the three saves, for every `stride`-th N until they
  /// are complete; with `again` it fails once more while the next run starts.
  void fail_everywhere(int stride, bool again) const {
    bool complete = false;
    int failures = 0;
    for (int last = 1; !complete; last += stride) {
      SCOPED_TRACE(last);
      fs::remove_all(path());
      SmallReplica first(1);
      directory_at(path(), 1).save(first.arrays(), at_step(8));
      const int status = status_of([&] {
        const Variable crash("LOCKSTEP_DISK_CRASH_AT", std::to_string(last));
        save_thrice(path(), 1);
      });
      complete = status == 0;
      ASSERT_TRUE(complete || status == kPowerFailed) << status;
      failures += complete ? 0 : 1;
      for (int start = 1; again && start <= 6; ++start)
        status_of([&] {
          const Variable crash("LOCKSTEP_DISK_CRASH_AT", std::to_string(start));
          directory_at(path(), 1).prepare(1);
        });
      expect_sound(complete ? 4 : 1);
      if (HasFailure()) return;
    }
    EXPECT_GE(failures, 30 / stride);
  }

  ScratchDirectory scratch_;
  Variable here_{"LOCKSTEP_DISK_UNDER", scratch_.path().string()};
};

TEST_F(CheckpointDisk, PowerLossAfterSomeOperationsKeepsAnIntactCheckpoint) {
  fail_everywhere(9, false);
}

TEST_F(CheckpointDisk, PowerLossAfterSomeOperationsWithoutExchangeKeepsAnIntactCheckpoint) {
  const Variable no_exchange("LOCKSTEP_DISK_NO_EXCHANGE", "1");
  fail_everywhere(9, false);
}

using LongCheckpointDisk = CheckpointDisk;

TEST_F(LongCheckpointDisk, PowerLossAfterAnyOperationKeepsAnIntactCheckpoint) {
  fail_everywhere(1, true);
}

TEST_F(LongCheckpointDisk, PowerLossAfterAnyOperationWithoutExchangeKeepsAnIntactCheckpoint) {
  const Variable no_exchange("LOCKSTEP_DISK_NO_EXCHANGE", "1");
  fail_everywhere(1, true);
}

/// Both copies of a step under hidden names, as left by a crash between the renames if the file
/// system cannot exchange names.
class CheckpointDiskCopies : public CheckpointDisk {
 protected:
  void SetUp() override {
    SmallReplica first(1);
    SmallReplica second(2);
    const fs::path name = path() / "step-00000008";
    directory_at(path(), 1).save(first.arrays(), at_step(8));
    fs::copy(name, scratch_.path() / "older", fs::copy_options::recursive);
    directory_at(path(), 1).save(second.arrays(), at_step(8));
    fs::rename(name, newer_);
    fs::rename(scratch_.path() / "older", path() / ".step-00000008.tmp-other-77.old");
  }
  fs::path newer_ = path() / ".step-00000008.tmp-other-77";
};

TEST_F(CheckpointDiskCopies, UnderHiddenNamesRestoreTheNewer) {
  expect_sound(2);
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointDiskCopies, RestoreTheOlderIfTheNewerIsDamaged) {
  flip_bit(newer_ / kModelFile, fs::file_size(newer_ / kModelFile) - 3);
  expect_sound(1);
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointDisk, AnOldCheckpointThatCannotBeRemovedIsAWarning) {
  SmallReplica replica(1);
  std::ostringstream messages;
  const auto log =
      std::make_shared<Logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(messages));
  CheckpointDirectory checkpoints({path(), 2, std::chrono::milliseconds(0)}, alone(), log);
  for (const std::int64_t step : {8, 16}) checkpoints.save(replica.arrays(), at_step(step));
  {
    const Variable under("LOCKSTEP_DISK_UNDER",
                         (path() / "step-00000008").string());  // the only one that is renamed
    const Variable only("LOCKSTEP_DISK_FAIL_ONLY", "rename");
    const Variable at("LOCKSTEP_DISK_FAIL_AT", "1");
    const Variable error("LOCKSTEP_DISK_ERROR", std::to_string(ESTALE));
    EXPECT_NO_THROW(checkpoints.save(replica.arrays(), at_step(24)));
  }
  EXPECT_THAT(messages.str(), HasSubstr("cannot remove the old checkpoint "));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008", "step-00000016", "step-00000024"));
}

// ---- The order in which bytes and names become durable

struct Operation {
  std::string kind;
  std::string path;
  std::string to;  // target of a rename
};

std::vector<Operation> read_record(const fs::path& file) {
  std::vector<Operation> operations;
  std::istringstream lines(contents_of(file));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Operation& operation = operations.emplace_back();
    words >> operation.kind >> operation.path >> operation.to;
  }
  return operations;
}

bool is_below(const std::string& path, const std::string& directory) {
  return path.starts_with(directory + "/");
}

/// Rules for a disk that may lose power at any time; describes each violation.
std::vector<std::string> broken_rules(const std::vector<Operation>& operations,
                                      const std::string& directory) {
  std::vector<std::string> broken;
  std::set<std::string> unsynced_files;
  std::set<std::string> unsynced_names;  // directories with names added or removed
  for (const Operation& operation : operations) {
    const auto& [kind, path, to] = operation;
    const std::string parent = fs::path(path).parent_path();
    if (kind == "write") unsynced_files.insert(path);
    if (kind == "mkdir") unsynced_names.insert(parent);
    if (kind == "fsync") {
      unsynced_files.erase(path);
      unsynced_names.erase(path);
    }
    if (kind == "rename" && parent != directory) {
      if (unsynced_files.contains(path))
        broken.push_back(path + " was renamed before its bytes were synced");
      unsynced_names.insert(parent);
    }
    const bool is_published = fs::path(to).filename().string().starts_with("step-");
    if ((kind == "rename" || kind == "exchange") && parent == directory) {
      if (is_published && unsynced_names.contains(path))
        broken.push_back(path + " was published before it was synced");
      for (fs::path above = directory; is_published && above != above.root_path();
           above = above.parent_path())
        if (above != directory && unsynced_names.contains(above))
          broken.push_back(to + " was published before " + above.string() + " was synced");
      unsynced_names.insert(directory);
    }
    const bool is_of_checkpoint =
        fs::path(path).filename() == kManifestName || fs::path(path).filename() == kModelFile;
    if (kind == "unlink" && is_of_checkpoint && is_below(path, directory) &&
        unsynced_names.contains(directory))
      broken.push_back(path + " was removed before " + directory + " was synced");
  }
  if (unsynced_names.contains(directory)) broken.push_back(directory + " was left unsynced");
  return broken;
}

class CheckpointOrder : public CheckpointDisk {
 protected:
  std::vector<std::string> rules_broken_by_saves() const {
    const fs::path record =
        scratch_.path().parent_path() / (scratch_.path().filename().string() + "-record");
    const fs::path directory = scratch_.path() / "d" / "e" / "f";
    EXPECT_EQ(status_of([&] {
                const Variable to("LOCKSTEP_DISK_RECORD", record.string());
                save_thrice(directory, 1);
              }),
              0);
    const std::vector<Operation> operations = read_record(record);
    fs::remove(record);
    EXPECT_THAT(operations,
                Contains(::testing::Field(&Operation::to, (directory / "step-00000016").string())));
    return broken_rules(operations, directory);
  }
};

TEST_F(CheckpointOrder, IsSafeAgainstALossOfPower) {
  EXPECT_THAT(rules_broken_by_saves(), IsEmpty());
}

TEST_F(CheckpointOrder, IsSafeAgainstALossOfPowerWithoutExchange) {
  const Variable no_exchange("LOCKSTEP_DISK_NO_EXCHANGE", "1");
  EXPECT_THAT(rules_broken_by_saves(), IsEmpty());
}

TEST(BrokenRules, AreFound) {
  using Operations = std::vector<Operation>;
  EXPECT_THAT(broken_rules({{"write", "/d/.t/.m", ""}, {"rename", "/d/.t/.m", "/d/.t/m"}}, "/d"),
              ElementsAre("/d/.t/.m was renamed before its bytes were synced"));
  EXPECT_THAT(broken_rules({{"rename", "/d/.t/.m", "/d/.t/m"},
                            {"rename", "/d/.t", "/d/step-1"},
                            {"fsync", "/d", ""}},
                           "/d"),
              ElementsAre("/d/.t was published before it was synced"));
  EXPECT_THAT(
      broken_rules(
          {{"mkdir", "/a/d", ""}, {"rename", "/a/d/.t", "/a/d/step-1"}, {"fsync", "/a/d", ""}},
          "/a/d"),
      ElementsAre("/a/d/step-1 was published before /a was synced"));
  const Operations hasty = {{"exchange", "/d/.t", "/d/step-1"},
                            {"unlink", "/d/.t/MANIFEST.json", ""},
                            {"fsync", "/d", ""}};
  EXPECT_THAT(broken_rules(hasty, "/d"),
              ElementsAre("/d/.t/MANIFEST.json was removed before /d was synced"));
  EXPECT_THAT(broken_rules({{"rename", "/d/.t", "/d/step-1"}}, "/d"),
              ElementsAre("/d was left unsynced"));
}

// ---- Errors of single operations

class CheckpointDiskError : public CheckpointDisk, public ::testing::WithParamInterface<int> {
 protected:
  /// Makes the `call`-th write, fsync, rename or close of a save fail. False if there are fewer
  /// calls.
  bool fail_at(int call) const {
    fs::remove_all(path());
    SmallReplica first(1);
    SmallReplica second(2);
    directory_at(path(), 3).save(first.arrays(), at_step(8));
    const int status = status_of([&] {
      CheckpointDirectory checkpoints = directory_at(path(), 3);
      checkpoints.prepare(1);
      bool failed = false;
      try {
        const Variable at("LOCKSTEP_DISK_FAIL_AT", std::to_string(call));
        const Variable error("LOCKSTEP_DISK_ERROR", std::to_string(GetParam()));
        checkpoints.save(second.arrays(), at_step(16));
      } catch (const SaveError&) {
        failed = true;
      }
      checkpoints.save(second.arrays(), at_step(24));
      ::_exit(failed ? 3 : 0);
    });
    EXPECT_TRUE(status == 0 || status == 3) << "call " << call << " ended with " << status;
    expect_sound(2);
    for (const std::string& name : names_in(path()))
      EXPECT_THAT(name, ::testing::StartsWith("step-"));
    return status == 3;
  }
};

TEST_P(CheckpointDiskError, KeepsEarlierCheckpointsAndTheNextSaveSucceeds) {
  for (const int call : {1, 6, 11}) fail_at(call);
}

class LongCheckpointDiskError : public CheckpointDiskError {};

TEST_P(LongCheckpointDiskError, OfAnyOperationKeepsEarlierCheckpointsAndTheNextSaveSucceeds) {
  int failures = 0;
  for (int call = 1; call <= 60 && !HasFailure(); ++call) failures += fail_at(call) ? 1 : 0;
  EXPECT_GE(failures, 8);
}

INSTANTIATE_TEST_SUITE_P(Errors, CheckpointDiskError, ::testing::Values(EIO));
INSTANTIATE_TEST_SUITE_P(Errors, LongCheckpointDiskError,
                         ::testing::Values(EIO, ENOSPC, EDQUOT, ESTALE));

TEST_F(CheckpointDisk, AQuotaRemovesOldCheckpointsButNotTheNewestThatVerifies) {
  SmallReplica replica(1);
  CheckpointDirectory checkpoints = directory_at(path(), 5);
  for (const std::int64_t step : {1, 2, 3}) checkpoints.save(replica.arrays(), at_step(step));
  const fs::path newest = path() / "step-00000003" / kModelFile;
  flip_bit(newest, fs::file_size(newest) - 3);
  const int status = status_of([&] {
    const Variable only("LOCKSTEP_DISK_FAIL_ONLY", "write");
    const Variable at("LOCKSTEP_DISK_FAIL_AT", "1");
    const Variable error("LOCKSTEP_DISK_ERROR", std::to_string(EDQUOT));
    checkpoints.save(replica.arrays(), at_step(4));
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000002", "step-00000003", "step-00000004"));
}

TEST_F(CheckpointDisk, KeepOneDoesNotReplaceTheOldCheckpointByACorruptOne) {
  SmallReplica first(1);
  SmallReplica second(2);
  CheckpointDirectory checkpoints = directory_at(path(), 1);
  checkpoints.save(first.arrays(), at_step(8));
  const Variable damages("LOCKSTEP_DISK_DAMAGE", kModelFile);
  EXPECT_THAT(checkpoint_error([&] { checkpoints.save(second.arrays(), at_step(16)); }),
              HasSubstr("model.safetensors] expected checksum "));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

// ---- A file system without locks

class CheckpointWithoutLocks : public CheckpointDisk {
 protected:
  Variable no_locks_{"LOCKSTEP_DISK_NO_LOCKS", "1"};
};

TEST_F(CheckpointWithoutLocks, RejectsASecondRunWhileTheFirstContinues) {
  SmallReplica replica(1);
  {
    CheckpointDirectory first = directory_at(path(), 3);
    first.prepare(1);
    CheckpointDirectory second = directory_at(path(), 3);
    EXPECT_THAT(checkpoint_error([&] { second.prepare(1); }),
                HasSubstr(fmt::format(
                    "expected exclusive use of the directory; process {} on {} writes there: it "
                    "renewed ",
                    ::getpid(), host_name())));
    EXPECT_NO_THROW(first.save(replica.arrays(), at_step(8)));
  }
  EXPECT_NO_THROW(directory_at(path(), 3).prepare(1));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000008"));
}

TEST_F(CheckpointWithoutLocks, TakesOverTheLeaseOfAnEndedProcess) {
  ASSERT_EQ(status_of([&] {
              CheckpointDirectory checkpoints = directory_at(path(), 3);
              checkpoints.prepare(1);
              ::_exit(0);
            }),
            0);
  ASSERT_TRUE(fs::exists(path() / ".lease"));
  EXPECT_NO_THROW(directory_at(path(), 3).prepare(1));
}

TEST_F(CheckpointWithoutLocks, TakesOverTheLeaseOfAnEndedProcessWithAReusedId) {
  fs::create_directory(path());
  overwrite(path() / ".lease", fmt::format("{} {} {} x {}", ::getpid(), process_namespace(),
                                           this_process().start - 1, host_name()));
  EXPECT_NO_THROW(directory_at(path(), 3).prepare(1));
}

TEST_F(CheckpointWithoutLocks, TakesOverAnExpiredLeaseOfAnotherHost) {
  fs::create_directory(path());
  overwrite(path() / ".lease", "77 0123456789abcdef-f0000000 5 x elsewhere");
  DirectoryLease lease(path(), std::chrono::milliseconds(0),
                       {std::chrono::milliseconds(100), std::chrono::milliseconds(300)});
  EXPECT_NO_THROW(lease.check_held());
}

TEST_F(CheckpointWithoutLocks, RespectsARenewedLeaseOfAnotherHost) {
  fs::create_directory(path());
  const fs::path file = path() / ".lease";
  overwrite(file, "77 0123456789abcdef-f0000000 5 x elsewhere");
  std::atomic<bool> ended{false};
  std::thread elsewhere([&] {
    while (!ended) {
      fs::last_write_time(file, fs::file_time_type::clock::now());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_THAT(checkpoint_error([&] { DirectoryLease(path(), std::chrono::milliseconds(0)); }),
              HasSubstr("process 77 on elsewhere writes there"));
  ended = true;
  elsewhere.join();
}

TEST_F(CheckpointWithoutLocks, ALostLeaseStopsSaves) {
  SmallReplica replica(1);
  CheckpointDirectory stopped = directory_at(path(), 3);
  stopped.prepare(1);
  overwrite(path() / ".lease", "77 0123456789abcdef-f0000000 5 x elsewhere");
  EXPECT_THAT(checkpoint_error([&] { stopped.save(replica.arrays(), at_step(8)); }),
              HasSubstr("process 77 on elsewhere has taken it over"));
  EXPECT_THAT(names_in(path()), ElementsAre(".lease"));
}

TEST_F(CheckpointWithoutLocks, RecreatesARemovedDirectory) {
  SmallReplica replica(1);
  CheckpointDirectory checkpoints = directory_at(path(), 3);
  checkpoints.prepare(1);
  fs::remove_all(path());
  checkpoints.save(replica.arrays(), at_step(8));
  EXPECT_THAT(names_in(path()), ElementsAre(".lease", "step-00000008"));
}

TEST_F(CheckpointWithoutLocks, KeepsTemporariesOfRunningProcesses) {
  fs::create_directory(path());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string living = chief_temporary_prefix(8) + "x";
  const std::string mark = fmt::format("-{}-{}-", ::getpid(), this_process().start);
  const auto instead = [&](pid_t process, std::uint64_t start) {
    std::string name = living;
    return name.replace(name.rfind(mark), mark.size(), fmt::format("-{}-{}-", process, start));
  };
  const std::string dead = instead(child, this_process().start);
  const std::string reused = instead(::getpid(), this_process().start - 1);
  for (const std::string& name : {living, dead, reused}) fs::create_directory(path() / name);
  fs::create_directory(path() / ".step-00000009.tmp-elsewhere-77");  // just now
  remove_leftovers(path(), Leftovers::abandoned);
  EXPECT_THAT(names_in(path()),
              ::testing::UnorderedElementsAre(living, ".step-00000009.tmp-elsewhere-77"));
  remove_leftovers(path(), Leftovers::all);
  EXPECT_THAT(names_in(path()), IsEmpty());
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
