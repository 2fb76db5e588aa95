#include "apps/lockstep/doctor/folders.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>

#include "device/cpu.h"

namespace lockstep::apps::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWritten = 4'000'000;
constexpr std::int64_t kScarce = 1'000'000'000;  // bytes
constexpr std::int64_t kHopeless = 64'000'000;
constexpr std::int64_t kFewInodes = 100;
constexpr double kSlowDisk = 10;  // MB/s

fs::path nearest_existing(fs::path folder) {
  std::error_code ignored;
  folder = fs::absolute(folder, ignored);
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

/// Why not; empty where `bytes` were written to `file` and are on the disk.
std::string write_file(const fs::path& file, std::size_t bytes) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return std::strerror(errno);
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
  return fmt::format(".lockstep-doctor-{}-{}-{}", kind, device::host_name(), ::getpid());
}

/// Free space, and what to do about too little of it. `use`: what is kept there.
void judge_space(Outcome& outcome, const Reported<FolderFacts>& report, const std::string& where,
                 const std::string& remedy) {
  const FolderFacts& facts = report.facts;
  if (!facts.failure.empty()) return;  // which says more
  if (facts.free_bytes >= 0 && facts.free_bytes < kScarce)
    outcome.add({.ranks = {report.place.rank},
                 .level = facts.free_bytes < kHopeless ? Level::problem : Level::warning,
                 .what = fmt::format("{} has {} free", where, human_bytes(static_cast<double>(facts.free_bytes))),
                 .remedy = remedy});
  if (facts.free_inodes >= 0 && facts.free_inodes < kFewInodes)
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::problem,
                 .what = fmt::format("the file system of {} has room for {} more files", where, facts.free_inodes),
                 .remedy = remedy});
  if (facts.megabytes_per_second > 0 && facts.megabytes_per_second < kSlowDisk)
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::warning,
                 .what = fmt::format("{} takes {:.2g} MB/s", where, facts.megabytes_per_second),
                 .remedy = "use a faster disk, or save less often (--save-every)"});
}

std::string space_text(const Reports<FolderFacts>& reports) {
  for (const auto& report : reports.answered)
    if (report.facts.writes && report.facts.failure.empty())
      return fmt::format("{} free, {:.3g} MB/s to the disk", human_bytes(static_cast<double>(report.facts.free_bytes)),
                         report.facts.megabytes_per_second);
  return "see below";
}

/// Waits a little: a network folder tells other hosts of a new file when their memory of its folder has grown old.
bool appears(const fs::path& file) {
  constexpr auto kLimit = std::chrono::seconds(4);
  const auto begin = std::chrono::steady_clock::now();
  std::error_code ignored;
  while (!fs::exists(file, ignored)) {
    if (std::chrono::steady_clock::now() - begin > kLimit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace

FolderFacts try_folder(const fs::path& folder, std::size_t bytes) {
  FolderFacts facts{.writes = true};
  const fs::path there = nearest_existing(folder);
  struct statvfs space {};
  if (::statvfs(there.c_str(), &space) == 0) {
    facts.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
    if (space.f_files > 0) facts.free_inodes = static_cast<std::int64_t>(space.f_favail);
  }
  std::error_code error;
  if (!fs::is_directory(there, error)) {
    facts.failure = fmt::format("{} is not a folder", there.string());
    return facts;
  }
  const fs::path file = there / own_name("write");
  const auto begin = std::chrono::steady_clock::now();
  facts.failure = write_file(file, bytes);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fs::remove(file, error);
  if (facts.failure.empty())
    facts.megabytes_per_second = static_cast<double>(bytes) / 1e6 / std::max(seconds, 1e-6);
  else
    facts.failure = fmt::format("{} cannot be written: {}", there.string(), facts.failure);
  return facts;
}

Reports<FolderFacts> measure_checkpoint_folder(Ranks& ranks, const std::string& folder) {
  constexpr const char* kCheck = "checkpoints";
  const bool is_chief = ranks.mine().rank == 0;
  // Beside the folder where the folder is yet to be made.
  const std::string name = own_name("marker");
  std::optional<std::string> marker = within<std::string>(ranks.limit(), [folder, name, is_chief]() -> std::string {
    if (!is_chief) return "";
    const fs::path file = nearest_existing(folder) / name;
    return write_file(file, 1).empty() ? file.string() : "";
  });
  const std::string file = ranks.gather(kCheck, marker.value_or("")).front();
  const auto reports = ranks.measure<FolderFacts>(kCheck, [folder, file, is_chief] {
    FolderFacts facts;
    if (is_chief) facts = try_folder(folder, kWritten);
    facts.sees_marker = file.empty() || appears(file);
    return facts;
  });
  if (is_chief && !file.empty())
    within<bool>(ranks.limit(), [file] {
      std::error_code ignored;
      return fs::remove(file, ignored);
    });
  return reports;
}

Outcome judge_checkpoint_folder(const Reports<FolderFacts>& reports, const std::string& folder) {
  Outcome outcome{.check = "checkpoints"};
  outcome.skipped = folder.empty();
  if (outcome.skipped) {
    outcome.summary = "not asked for: --checkpoint-dir DIR";
    return outcome;
  }
  add_late(outcome, reports.late, "the disk or file server does not answer: look at df, mount and dmesg of that host");
  for (const auto& report : reports.answered) {
    if (!report.facts.failure.empty())
      outcome.add({.ranks = {report.place.rank},
                   .level = Level::problem,
                   .what = report.facts.failure,
                   .remedy = "name a folder with --checkpoint-dir that the user of the job may write to on the host of "
                             "rank 0, on a file system that is not full and not mounted read-only"});
    judge_space(outcome, report, folder, "remove old checkpoints, keep fewer (--keep), or name a larger disk");
    if (!report.facts.sees_marker)
      outcome.add({.ranks = {report.place.rank},
                   .level = Level::warning,
                   .what = fmt::format("{} on {} is not the folder that rank 0 sees", folder, report.place.host),
                   .remedy =
                       "name a folder that all hosts share; else a run that starts with rank 0 elsewhere does not "
                       "find its checkpoints"});
  }
  outcome.summary = fmt::format("{}: {}", folder, space_text(reports));
  return outcome;
}

Reports<FolderFacts> measure_temporary_folder(Ranks& ranks) {
  return ranks.measure<FolderFacts>("temporary-files", [tries = ranks.mine().local_rank == 0] {
    std::error_code ignored;
    return tries ? try_folder(fs::temp_directory_path(ignored), kWritten / 4) : FolderFacts{};
  });
}

Outcome judge_temporary_folder(const Reports<FolderFacts>& reports, const std::string& folder) {
  Outcome outcome{.check = "temporary-files"};
  const std::string remedy = "name a folder with room in TMPDIR, on every host";
  add_late(outcome, reports.late, "the disk does not answer: look at df, mount and dmesg of that host");
  for (const auto& report : reports.answered) {
    if (!report.facts.writes) continue;
    if (!report.facts.failure.empty())
      outcome.add(
          {.ranks = {report.place.rank}, .level = Level::problem, .what = report.facts.failure, .remedy = remedy});
    judge_space(outcome, report, fmt::format("{} of {}", folder, report.place.host), remedy);
  }
  outcome.summary = fmt::format("{}: {}", folder, space_text(reports));
  return outcome;
}

}  // namespace lockstep::apps::doctor
