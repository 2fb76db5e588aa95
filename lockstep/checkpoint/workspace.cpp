#include "lockstep/checkpoint/workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";
constexpr std::string_view kWorkerPrefix = ".workertemp_";
constexpr std::string_view kStepPrefix = ".step-";
constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::string_view kRemovalPrefix = ".removed-step-";
constexpr std::string_view kLeasePrefix = ".lease.tmp-";
constexpr std::chrono::milliseconds kLockPoll{20};
constexpr std::chrono::hours kAbandoned{24};

std::string host_and_process() { return fmt::format("{}-{}-", host_name(), process_mark()); }

/// A checkpoint that is being written or replaced.
bool is_unnamed_checkpoint(std::string_view name) {
  return name.starts_with(kStepPrefix) && name.find(kTemporaryMark) != std::string_view::npos;
}

bool is_temporary(std::string_view name) {
  return is_unnamed_checkpoint(name) || name.starts_with(kWorkerPrefix) ||
         name.starts_with(kRemovalPrefix) || name.starts_with(kLeasePrefix);
}

/// Whether nothing in the directory was modified for `time`, which must be long compared to clock
/// differences of hosts.
bool is_untouched_for(const fs::path& directory, std::chrono::seconds time) {
  std::error_code error;
  fs::file_time_type newest = fs::last_write_time(directory, error);
  if (error) return false;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    if (const auto written = entry->last_write_time(gone); !gone)
      newest = std::max(newest, written);
  }
  return !error && fs::file_time_type::clock::now() - newest >= time;
}

/// Whether the process in the name of `path` has ended, or, if that is unknown, nothing was
/// modified for `time`.
bool is_abandoned(const fs::path& path, std::chrono::seconds time) {
  const ProcessIdentity maker = maker_of(path.filename().native());
  return maker.id > 0 ? is_process_gone(maker) : is_untouched_for(path, time);
}

bool is_left_over(const fs::path& path, Leftovers which) {
  if (which == Leftovers::all) return true;
  return is_abandoned(path,
                      std::chrono::duration_cast<std::chrono::seconds>(LeaseTimes().lifetime));
}

std::vector<fs::path> hidden_in(const fs::path& directory,
                                const std::function<bool(std::string_view)>& wanted) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (wanted(entry->path().filename().string())) found.push_back(entry->path());
  return found;
}

/// Ignores errors: leftovers are hidden and only take space.
void remove_if(const fs::path& directory, const std::function<bool(const fs::path&)>& wanted) {
  for (const fs::path& path : hidden_in(directory, is_temporary)) {
    std::error_code ignored;
    if (wanted(path)) fs::remove_all(path, ignored);
  }
}

FileDescriptor open_lock(const fs::path& directory) {
  const fs::path path = directory / kLockName;
  FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  const int error = errno;
  struct stat status = {};
  if (file.is_open() && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_nlink == 1)
    return file;
  if (file.is_open() || error == ELOOP || error == ENXIO)
    throw Error(ErrorCategory::checkpoint, path.string(),
                "expected a regular file with one hard link",
                "got a link or a special file, which is left unchanged");
  throw Error(ErrorCategory::checkpoint, directory.string(),
              "expected a directory that can be written", std::generic_category().message(error));
}

std::string read_owner(int descriptor) {
  std::array<char, 256> text{};
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& directory, std::chrono::milliseconds patience,
                             const WaitReport& report, const LeaseTimes& times)
    : path_(directory / kLockName), file_(open_lock(directory)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) {
      why_lease_ = std::generic_category().message(errno);
      file_ = FileDescriptor();
      lease_.emplace(directory, patience, times, report);
      return;
    }
    const std::string owner = read_owner(file_.get());
    if (report) report(owner);
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error(ErrorCategory::checkpoint, directory.string(),
                  "expected exclusive use of the directory", fmt::format("{} writes there", owner));
    std::this_thread::sleep_for(kLockPoll);
  }
  const std::string owner = fmt::format("process {} on {}", ::getpid(), host_name());
  // The text is only for the message above; the lock works without it.
  [[maybe_unused]] const bool written =
      ::ftruncate(file_.get(), 0) == 0 && ::pwrite(file_.get(), owner.data(), owner.size(), 0) > 0;
}

bool DirectoryLock::is_removed() const {
  // A missing lease in an existing directory means that it was taken over: see check_held().
  std::error_code unknown;
  if (lease_) return !std::filesystem::exists(path_.parent_path(), unknown) && !unknown;
  struct stat status = {};
  return ::stat(path_.c_str(), &status) != 0 && errno == ENOENT;
}

void DirectoryLock::check_held() const {
  if (lease_) return lease_->check_held();
  struct stat own = {};
  struct stat found = {};
  if (::fstat(file_.get(), &own) != 0 || ::stat(path_.c_str(), &found) != 0) return;
  if (own.st_dev == found.st_dev && own.st_ino == found.st_ino) return;
  throw Error(ErrorCategory::checkpoint, path_.parent_path().string(),
              "expected exclusive use of the directory",
              "it was removed, and another run has created it again");
}

std::string chief_temporary_prefix(std::int64_t step) {
  return fmt::format("{}{:08}{}{}", kStepPrefix, step, kTemporaryMark, host_and_process());
}

std::string removal_prefix(std::int64_t step) {
  return fmt::format("{}{:08}-{}", kRemovalPrefix, step, host_and_process());
}

std::string worker_temporary_prefix(int rank) {
  return fmt::format("{}{}-{}", kWorkerPrefix, rank, host_and_process());
}

std::vector<fs::path> recover_checkpoints(const fs::path& directory, Leftovers which) {
  // By step, newest first.
  std::map<std::int64_t, std::multimap<std::uint64_t, fs::path, std::greater<>>> found;
  for (const fs::path& path : hidden_in(directory, is_unnamed_checkpoint)) {
    std::error_code ignored;
    if (!fs::is_directory(fs::symlink_status(path, ignored)) || !is_left_over(path, which))
      continue;
    try {
      const Manifest manifest = read_manifest(path);
      if (manifest.step < 0 ||
          fs::exists(fs::symlink_status(directory / checkpoint_name(manifest.step), ignored)))
        continue;
      check_contents(path, manifest);
      found[manifest.step].emplace(manifest.sequence, path);
    } catch (const Error&) {  // incomplete, or partly removed
    }
  }
  std::vector<fs::path> recovered;
  for (const auto& [step, candidates] : found) {
    const fs::path name = directory / checkpoint_name(step);
    if (::rename(candidates.begin()->second.c_str(), name.c_str()) != 0)
      throw Error(ErrorCategory::checkpoint, name.string(), "expected to rename the checkpoint",
                  std::generic_category().message(errno));
    recovered.push_back(name);
  }
  if (!recovered.empty()) sync_directory(directory);
  return recovered;
}

void remove_leftovers(const fs::path& directory, Leftovers which) {
  remove_if(directory, [&](const fs::path& path) { return is_left_over(path, which); });
}

void remove_worker_leftovers(const fs::path& directory) {
  remove_if(directory, [](const fs::path& path) {
    return path.filename().native().starts_with(kWorkerPrefix) && is_abandoned(path, kAbandoned);
  });
}

fs::path node_directory() {
  const char* const named = std::getenv("TMPDIR");
  for (const fs::path& path : {fs::path(named != nullptr ? named : ""), fs::path("/tmp")})
    if (!path.empty() && ::access(path.c_str(), W_OK | X_OK) == 0 && !is_on_shared_storage(path))
      return path;
  return {};
}

}  // namespace lockstep::inline v0::checkpoint
