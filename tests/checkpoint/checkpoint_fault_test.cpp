// Faults: damaged files, an unusable directory, a full disk, a concurrent run, and the end of the
// process at any moment.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "lockstep/base/system/process.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/workspace.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointFault : public ::testing::Test {
 protected:
  CheckpointDirectory directory(int keep = 3) const {
    return {{path(), keep, std::chrono::milliseconds(0)}, alone()};
  }
  fs::path path() const { return scratch_.path() / "run"; }

  /// Checkpoints of steps 10 and 20, with different contents.
  void save_two() {
    directory().save(first_.arrays(), at_step(10));
    directory().save(second_.arrays(), at_step(20));
  }

  /// Restores. The first checkpoint must be chosen and the second skipped. Returns the reason.
  std::string reason_of_fallback() {
    SmallReplica fresh;
    CheckpointDirectory checkpoints = directory();
    const auto restored = checkpoints.restore(fresh.arrays());
    EXPECT_TRUE(restored.has_value() && restored->state.step == 10 && fresh.holds_same_as(first_));
    EXPECT_EQ(checkpoints.skipped().size(), 1u);
    return checkpoints.skipped().empty() ? "" : checkpoints.skipped().front();
  }

  fs::path newest(const char* file) const { return path() / "step-00000020" / file; }

  ScratchDirectory scratch_;
  SmallReplica first_{1};
  SmallReplica second_{2};
};

TEST_F(CheckpointFault, AFlippedBitInAnyFileFallsBack) {
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile}) {
    save_two();
    flip_bit(newest(file), fs::file_size(newest(file)) - 3);
    EXPECT_THAT(reason_of_fallback(),
                HasSubstr(fmt::format("step-00000020/{}] expected checksum ", file)));
  }
}

TEST_F(CheckpointFault, ATruncatedFileFallsBack) {
  save_two();
  const auto bytes = fs::file_size(newest(kModelFile));
  fs::resize_file(newest(kModelFile), bytes - 1);
  EXPECT_THAT(
      reason_of_fallback(),
      HasSubstr(fmt::format("model.safetensors] expected {} bytes; it has {}", bytes, bytes - 1)));
}

TEST_F(CheckpointFault, AMissingFileFallsBack) {
  save_two();
  fs::remove(newest(kOptimizerFile));
  EXPECT_THAT(reason_of_fallback(), HasSubstr("bytes; No such file or directory"));
}

TEST_F(CheckpointFault, ATruncatedManifestFallsBack) {
  save_two();
  fs::resize_file(newest(kManifestName), fs::file_size(newest(kManifestName)) / 2);
  EXPECT_THAT(reason_of_fallback(), HasSubstr("step-00000020/MANIFEST.json] expected JSON, got "));
}

TEST_F(CheckpointFault, AMissingManifestFallsBack) {
  save_two();
  fs::remove(newest(kManifestName));
  EXPECT_THAT(reason_of_fallback(), HasSubstr("step-00000020/MANIFEST.json] expected a file that "
                                              "can be read; No such file or directory"));
}

TEST_F(CheckpointFault, RejectsInvalidManifests) {
  save_two();
  const std::string sound = contents_of(newest(kManifestName));
  const auto with = [&](const char* key, const nlohmann::json& value) {
    auto manifest = nlohmann::json::parse(sound);
    manifest[key] = value;
    overwrite(newest(kManifestName), manifest.dump());
    return reason_of_fallback();
  };
  EXPECT_THAT(with("format", 2),
              HasSubstr("expected format 1, got 2, which another version of Lockstep wrote"));
  EXPECT_THAT(with("step", 21), HasSubstr("expected the manifest of step 20; it is of step 21"));
  EXPECT_THAT(with("files", {{{"name", "../x"}, {"bytes", 1}, {"xxh3_64", "0000000000000000"}}}),
              HasSubstr("\"../x\" is not a file name"));
  EXPECT_THAT(with("files", {{{"name", "x"}, {"bytes", 1}, {"xxh3_64", "0"}}}),
              HasSubstr("\"0\" is not a checksum"));
  EXPECT_THAT(with("files", 3), HasSubstr("expected a manifest; its \"files\" is 3"));
  EXPECT_THAT(with("files", nlohmann::json::array()),
              HasSubstr("expected a manifest; it does not list model.safetensors"));
}

TEST_F(CheckpointFault, ResumeRequireFailsIfAllAreDamaged) {
  directory().save(first_.arrays(), at_step(10));
  flip_bit(path() / "step-00000010" / kModelFile, 200);
  EXPECT_THAT(checkpoint_error([&] { directory().restore(first_.arrays(), Resume::require); }),
              HasSubstr("expected a complete checkpoint; 1 damaged, the newest: ["));
}

TEST_F(CheckpointFault, DamagedCheckpointsDoNotCountAsKept) {
  save_two();
  fs::remove(newest(kManifestName));
  directory(2).save(second_.arrays(), at_step(30));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000010", "step-00000020", "step-00000030"));
  directory(2).save(second_.arrays(), at_step(20));
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000020", "step-00000030"));
}

TEST_F(CheckpointFault, AFullDiskKeepsEarlierCheckpointsAndNothingElse) {
  save_two();
  CheckpointDirectory checkpoints = directory();
  checkpoints.prepare(1);
  {
    const FileSizeLimit limit(64);
    EXPECT_THAT(checkpoint_error([&] { checkpoints.save(second_.arrays(), at_step(30)); }),
                HasSubstr("] expected to write the file; File too large"));
  }
  EXPECT_THAT(names_in(path()), ElementsAre("step-00000010", "step-00000020"));
  SmallReplica fresh;
  EXPECT_EQ(checkpoints.restore(fresh.arrays())->state.step, 20);
  checkpoints.save(second_.arrays(), at_step(30));
  EXPECT_EQ(checkpoints.restore(fresh.arrays())->state.step, 30);
}

TEST_F(CheckpointFault, PrepareFailsIfTheDiskIsFull) {
  CheckpointDirectory checkpoints = directory();
  EXPECT_THAT(checkpoint_error([&] { checkpoints.prepare(std::uint64_t{1} << 60); }),
              ::testing::MatchesRegex("\\[.*/run\\] expected 1152921504606846976 bytes free for a "
                                      "checkpoint; [0-9]+ are free"));
}

TEST_F(CheckpointFault, PrepareFailsIfTheDirectoryCannotBeCreated) {
  overwrite(scratch_.path() / "file", "");
  CheckpointDirectory below_a_file({scratch_.path() / "file" / "run"}, alone());
  EXPECT_EQ(
      checkpoint_error([&] { below_a_file.prepare(1); }),
      fmt::format("[{}] expected a directory for checkpoints that can be written; Not a directory",
                  (scratch_.path() / "file" / "run").string()));
  CheckpointDirectory a_file({scratch_.path() / "file"}, alone());
  EXPECT_THAT(
      checkpoint_error([&] { a_file.prepare(1); }),
      HasSubstr("expected a directory for checkpoints that can be written; Not a directory"));
  CheckpointDirectory unwritable({"/proc/self"}, alone());
  EXPECT_THAT(checkpoint_error([&] { unwritable.prepare(1); }),
              HasSubstr("[/proc/self] expected a directory that can be written; "));
}

TEST_F(CheckpointFault, RejectsASecondRunInTheDirectory) {
  {
    CheckpointDirectory running = directory();
    running.prepare(1);
    std::ostringstream messages;
    CheckpointOptions options{path(), 3, std::chrono::milliseconds(0)};
    options.lock_silence = std::chrono::milliseconds(0);
    CheckpointDirectory second(
        options, alone(),
        std::make_shared<Logger>("test",
                                 std::make_shared<spdlog::sinks::ostream_sink_mt>(messages)));
    const std::string owner = fmt::format("process {} on {}", ::getpid(), host_name());
    EXPECT_EQ(checkpoint_error([&] { second.prepare(1); }),
              fmt::format("[{}] expected exclusive use of the directory; {} writes there",
                          path().string(), owner));
    EXPECT_THAT(messages.str(), HasSubstr("waiting for " + owner + ", which writes there"));
    EXPECT_NO_THROW(running.save(first_.arrays(), at_step(1)));
  }
  EXPECT_NO_THROW(directory().prepare(1));
}

TEST_F(CheckpointFault, WaitsForARunThatIsEnding) {
  auto leaving = std::make_unique<CheckpointDirectory>(directory());
  leaving->prepare(1);
  std::thread next([&] {
    EXPECT_NO_THROW(CheckpointDirectory({path(), 3, std::chrono::minutes(5)}, alone()).prepare(1));
  });
  leaving.reset();
  next.join();
}

TEST_F(CheckpointFault, LeftoversOfAnEarlierCrashAreRemovedAtTheStart) {
  save_two();
  for (const char* name : {".step-00000030.tmp-other-77", ".step-00000020.tmp-other-77.old",
                           ".workertemp_3-other-78"}) {
    fs::create_directory(path() / name);
    overwrite(path() / name / kModelFile, "half");
  }
  fs::create_directory(path() / ".notes");
  directory().prepare(1);
  EXPECT_THAT(names_in(path()), ElementsAre(".notes", "step-00000010", "step-00000020"));
}

TEST_F(CheckpointFault, WorkersRemoveOnlyLeftoversOfEndedProcesses) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto of = [](const std::string& host, const std::string& where, pid_t process,
                     std::uint64_t start = this_process().start) {
    return fmt::format(".workertemp_1-{}-{}-{}-{}-abc", host, where, process, start);
  };
  const std::string here = process_namespace();
  const std::string dead = of(host_name(), here, child);
  const std::string alive = of(host_name(), here, ::getpid());
  const std::string reused = of(host_name(), here, ::getpid(), this_process().start - 1);
  // Another host of the same name, or a container: it is unknown whether that process is running.
  const std::string other_boot = of(host_name(), "0123456789abcdef-f0000000", child);
  const std::string long_ago = of(host_name(), "0123456789abcdef-f0000000", child + 1);
  for (const std::string& name : {dead, alive, reused, other_boot, long_ago})
    fs::create_directory(scratch_.path() / name);
  fs::last_write_time(scratch_.path() / long_ago,
                      fs::file_time_type::clock::now() - std::chrono::hours(25));

  remove_worker_leftovers(scratch_.path());

  EXPECT_THAT(names_in(scratch_.path()), ::testing::UnorderedElementsAre(alive, other_boot));
}

TEST_F(CheckpointFault, RejectsALockThatIsALinkAndDoesNotChangeIt) {
  const fs::path victim = scratch_.path() / "victim";
  const fs::path lock = path() / ".lock";
  fs::create_directory(path());
  overwrite(victim, "precious");
  const auto refusal = [&] { return checkpoint_error([&] { directory().prepare(1); }); };
  const std::string expected = fmt::format(
      "[{}] expected a regular file with one hard link, got a link or a special file, which is "
      "left unchanged",
      lock.string());
  fs::create_symlink(victim, lock);
  EXPECT_EQ(refusal(), expected);
  fs::remove(lock);
  fs::create_hard_link(victim, lock);
  EXPECT_EQ(refusal(), expected);
  fs::remove(lock);
  ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), expected);
  EXPECT_TRUE(fs::is_fifo(lock));
  EXPECT_EQ(contents_of(victim), "precious");
}

/// Ends this process with SIGKILL after `delay`.
void die_after(std::chrono::microseconds delay) {
  delay = std::max(delay, std::chrono::microseconds(1));  // 0 would mean never
  std::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
  itimerval timer{};
  timer.it_value.tv_sec = delay.count() / 1'000'000;
  timer.it_value.tv_usec = delay.count() % 1'000'000;
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

constexpr int kKeep = 2;

/// The child: recovers the directory, saves once, and continues saving until it is killed after
/// `saves_to_live` times the duration of the first save, so that slow disks and machines are
/// interrupted at the same places as fast ones. Writes the number of each completed save to `pipe`.
[[noreturn]] void save_until_killed(const fs::path& path, double saves_to_live, int pipe) noexcept {
  SmallReplica replica;
  CheckpointDirectory checkpoints({path, kKeep, std::chrono::milliseconds(0)}, alone());
  checkpoints.prepare(1);
  const auto restored = checkpoints.restore(replica.arrays());
  auto saves = restored ? static_cast<std::int64_t>(restored->state.metrics.at("saves")) : 0;
  for (bool first = true;; first = false) {
    ++saves;
    const auto start = std::chrono::steady_clock::now();
    SmallReplica next(static_cast<float>(saves));
    TrainingState state =
        at_step(saves / 2);  // each name twice, so that replacing is interrupted too
    state.metrics["saves"] = static_cast<double>(saves);
    checkpoints.save(next.arrays(), state);
    if (::write(pipe, &saves, sizeof saves) != sizeof saves) ::_exit(1);
    const std::chrono::duration<double> duration = std::chrono::steady_clock::now() - start;
    if (first)
      die_after(std::chrono::duration_cast<std::chrono::microseconds>(duration * saves_to_live));
  }
}

/// Runs one child to its end; returns the last save that it reported.
std::int64_t run_until_killed(const fs::path& path, double saves_to_live) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    save_until_killed(path, saves_to_live, ends[1]);
  }
  ::close(ends[1]);
  std::int64_t last = 0;
  for (std::int64_t saved = 0; ::read(ends[0], &saved, sizeof saved) == sizeof saved;) last = saved;
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
  return last;
}

TEST_F(CheckpointFault, AKillAtAnyTimeKeepsACompleteCheckpoint) {
  constexpr int kKills = 20;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> saves_to_live(0, 3);
  for (int kill = 0; kill < kKills; ++kill) {
    const std::int64_t acknowledged = run_until_killed(path(), saves_to_live(random));

    const std::vector<CheckpointInfo> found = list_checkpoints(path());
    EXPECT_LE(found.size(), static_cast<std::size_t>(
                                kKeep + 1));  // killed between saving and removing the oldest
    for (const CheckpointInfo& info : found) EXPECT_EQ(info.damage, "");
    SmallReplica replica;
    CheckpointDirectory checkpoints = directory(kKeep);
    const auto restored = checkpoints.restore(replica.arrays());
    EXPECT_THAT(checkpoints.skipped(), IsEmpty());
    ASSERT_TRUE(restored.has_value());
    const auto saves = static_cast<std::int64_t>(restored->state.metrics.at("saves"));
    EXPECT_GT(acknowledged, 0);
    EXPECT_GE(saves, acknowledged);
    EXPECT_TRUE(replica.holds_same_as(SmallReplica(static_cast<float>(saves))));
  }
  CheckpointDirectory checkpoints = directory(kKeep);
  checkpoints.save(first_.arrays(), at_step(1'000'000));
  const auto names = names_in(path());
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kKeep));
  for (const std::string& name : names) EXPECT_THAT(name, ::testing::StartsWith("step-"));
}

}  // namespace
}  // namespace lockstep::inline v0::checkpoint
