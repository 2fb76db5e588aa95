#include "apps/lockstep/doctor/folders.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "lockstep/base/clock.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWritten = 4'000'000;
constexpr std::int64_t kScarce = 1'000'000'000;  // bytes
constexpr std::int64_t kHopeless = 64'000'000;
constexpr std::int64_t kFewInodes = 100;
constexpr double kSlowDisk = 10;  // MB/s
constexpr std::chrono::milliseconds kAppears{4000};

fs::path nearest_existing(fs::path folder) {
  std::error_code ignored;
  folder = fs::absolute(folder, ignored);
  // A dangling link counts as existing, because the folder cannot be created in its place.
  while (!fs::exists(fs::symlink_status(folder, ignored)) && folder.has_relative_path())
    folder = folder.parent_path();
  return folder;
}

/// Creates `file`. Returns a descriptor for writing, or -1 and sets errno.
int make_file(const fs::path& file) {
  return ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/// Writes `bytes` to an unlinked `file` and syncs it to the disk. Returns the error; empty on
/// success.
std::string write_file(const fs::path& file, std::size_t bytes) {
  const int descriptor = make_file(file);
  if (descriptor < 0) return std::strerror(errno);
  ::unlink(file.c_str());
  const std::string contents(bytes, 'x');
  int reason = 0;
  for (std::size_t done = 0; done < bytes && reason == 0;) {
    const ssize_t written = ::write(descriptor, contents.data() + done, bytes - done);
    if (written < 0) reason = errno;
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  if (reason == 0 && ::fsync(descriptor) != 0) reason = errno;
  if (::close(descriptor) != 0 && reason == 0) reason = errno;
  return reason == 0 ? "" : std::strerror(reason);
}

std::string own_name(const char* kind) {
  return fmt::format(".lockstep-doctor-{}-{}-{}", kind, host_name(), process_mark());
}

/// Remedies for a folder.
struct Remedies {
  std::string space = {};
  std::string speed = {};
};

/// Judges free space and speed of a folder, which findings call `where`.
void judge_space(Outcome& outcome, const Reported<FolderFacts>& report, const std::string& where,
                 const Remedies& remedies) {
  const FolderFacts& facts = report.facts;
  if (!facts.failure.empty()) return;  // reported separately
  if (facts.free_bytes >= 0 && facts.free_bytes < kScarce)
    outcome.add({{report.place.rank},
                 facts.free_bytes < kHopeless ? Level::problem : Level::warning,
                 fmt::format("{} has {} free", where, human_bytes(facts.free_bytes)),
                 remedies.space});
  if (facts.free_inodes >= 0 && facts.free_inodes < kFewInodes)
    outcome.fail(
        report.place,
        fmt::format("the file system of {} has room for {} more files", where, facts.free_inodes),
        remedies.space);
  if (facts.megabytes_per_second > 0 && facts.megabytes_per_second < kSlowDisk)
    outcome.warn(report.place,
                 fmt::format("{} is written at {:.2g} MB/s", where, facts.megabytes_per_second),
                 remedies.speed);
}

std::string space_text(const Reports<FolderFacts>& reports) {
  for (const auto& [place, facts] : reports.answered)
    if (facts.writes && facts.failure.empty())
      return fmt::format(
          "{}: {}{} free, {:.3g} MB/s to the disk", facts.folder,
          facts.parent.empty() ? "" : fmt::format("to be created in {}, ", facts.parent),
          human_bytes(facts.free_bytes), facts.megabytes_per_second);
  return "see below";
}

/// Whether `file` exists. Waits for it, because clients of a network file system see new files only
/// after their cached directory expires.
bool appears(const fs::path& file) {
  const auto begin = std::chrono::steady_clock::now();
  std::error_code ignored;
  while (!fs::exists(file, ignored)) {
    if (std::chrono::steady_clock::now() - begin > kAppears) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

/// Creates an empty file in `folder`, or in its nearest existing parent. Returns its path; empty on
/// failure. If that took longer than `limit`, removes the file again, because no rank waits for it
/// any more.
std::string leave_marker(const fs::path& folder, const std::string& name,
                         std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kToBeHeard{500};
  const auto deadline = std::chrono::steady_clock::now() + limit - kToBeHeard;
  const fs::path file = nearest_existing(folder) / name;
  const int descriptor = make_file(file);
  if (descriptor < 0) return "";
  ::close(descriptor);
  if (std::chrono::steady_clock::now() < deadline) return file.string();
  ::unlink(file.c_str());
  return "";
}

fs::path temporary_folder() {
  const char* named = std::getenv("TMPDIR");
  return named == nullptr || *named == '\0' ? "/tmp" : named;
}

}  // namespace

FolderFacts try_folder(const fs::path& folder, std::size_t bytes) {
  FolderFacts facts{.writes = true, .folder = folder.string()};
  const fs::path there = nearest_existing(folder);
  std::error_code error;
  if (there != fs::absolute(folder, error)) facts.parent = there.string();
  struct statvfs space {};
  if (::statvfs(there.c_str(), &space) == 0) {
    facts.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
    if (space.f_files > 0) facts.free_inodes = static_cast<std::int64_t>(space.f_favail);
  }
  if (!fs::is_directory(there, error)) {
    facts.failure = fmt::format("{} is not a folder", there.string());
    return facts;
  }
  const auto begin = std::chrono::steady_clock::now();
  facts.failure = write_file(there / own_name("write"), bytes);
  const double seconds = seconds_since(begin);
  if (facts.failure.empty())
    facts.megabytes_per_second = static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-6);
  else
    facts.failure = fmt::format("{} cannot be written: {}", there.string(), facts.failure);
  return facts;
}

Reports<FolderFacts> measure_checkpoint_folder(Ranks& ranks, const std::string& folder) {
  constexpr const char* kCheck = "checkpoints";
  const bool is_chief = ranks.mine().rank == 0;
  Measured<std::string> marker;
  if (is_chief)
    marker = measured_within<std::string>(
        ranks.limit(), [folder, name = own_name("marker"), limit = ranks.limit()] {
          return leave_marker(folder, name, limit);
        });
  const std::string file = ranks.gather(kCheck, marker.facts.value_or("")).front();
  auto reports = ranks.measure<FolderFacts>(
      kCheck,
      [folder, file, is_chief] {
        FolderFacts facts;
        if (is_chief) facts = try_folder(folder, kWritten);
        facts.sees_marker = file.empty() || appears(file);
        return facts;
      },
      kAppears + Ranks::kLeast);
  if (is_chief && !file.empty())
    measured_within<int>(ranks.limit(), [file] { return ::unlink(file.c_str()); });
  ranks.activity().tick();  // restarts the watchdog's timeout
  return reports;
}

Outcome judge_checkpoint_folder(const Reports<FolderFacts>& reports, const std::string& folder) {
  if (folder.empty()) return skipped_without("checkpoints", "--checkpoint-dir DIR");
  Outcome outcome{.check = "checkpoints"};
  add_missing(outcome, reports.missing, kCheckTheDisk);
  for (const auto& report : reports.answered) {
    if (!report.facts.failure.empty())
      outcome.fail(report.place, report.facts.failure,
                   "set --checkpoint-dir to a folder that the user of the job may write to on "
                   "the host of "
                   "rank 0, on a file system that is not full and not mounted read-only");
    judge_space(outcome, report, folder,
                {.space = "remove old checkpoints, keep fewer (--keep), or use a larger disk",
                 .speed = "use a faster disk, or save less often (--save-every)"});
    if (!report.facts.sees_marker)
      outcome.warn(
          report.place,
          fmt::format("{} on {} is not the folder that rank 0 sees", folder, report.place.host),
          "use a folder that all hosts share; otherwise a run with rank 0 on "
          "another host does not find "
          "its checkpoints");
  }
  outcome.summary = space_text(reports);
  return outcome;
}

Reports<FolderFacts> measure_temporary_folder(Ranks& ranks) {
  return ranks.measure<FolderFacts>(
      "temporary-files", [tries = ranks.mine().local_rank == 0]() -> FolderFacts {
        if (!tries) return {};
        const fs::path folder = temporary_folder();
        std::error_code ignored;
        if (!fs::exists(folder, ignored))  // unlike checkpoint folders, it is not created
          return {.writes = true,
                  .folder = folder.string(),
                  .failure = folder.string() + " does not exist"};
        return try_folder(folder, kWritten / 4);
      });
}

Outcome judge_temporary_folder(const Reports<FolderFacts>& reports) {
  Outcome outcome{.check = "temporary-files"};
  const std::string remedy = "set TMPDIR to a folder with free space, on every host";
  add_missing(outcome, reports.missing, kCheckTheDisk);
  for (const auto& report : reports.answered) {
    if (!report.facts.writes) continue;
    if (!report.facts.failure.empty())
      outcome.fail(report.place, fmt::format("{} on {}", report.facts.failure, report.place.host),
                   remedy);
    judge_space(outcome, report, fmt::format("{} of {}", report.facts.folder, report.place.host),
                {.space = remedy, .speed = "set TMPDIR to a folder on a faster disk"});
  }
  outcome.summary = space_text(reports);
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
