#include "strategy/checkpoint_workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "device/cpu.h"
#include "device/error.h"
#include "strategy/files.h"

namespace lockstep::strategy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";
constexpr std::string_view kWorkerPrefix = ".workertemp_";
constexpr std::chrono::milliseconds kLockPoll{20};

std::string this_process() { return fmt::format("{}-{}", device::host_name(), ::getpid()); }

bool is_temporary(std::string_view name) {
  return name.starts_with(kWorkerPrefix) ||
         (name.starts_with(".step-") && name.find(".tmp-") != std::string_view::npos);
}

/// Whether `name` is of a worker on this host whose process has ended.
bool is_of_the_dead(std::string_view name) {
  const std::size_t dash = name.find('-');
  const std::string middle = fmt::format("-{}-", device::host_name());
  if (!name.starts_with(kWorkerPrefix) || dash == std::string_view::npos || !name.substr(dash).starts_with(middle))
    return false;
  const std::string_view number = name.substr(dash + middle.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), pid);
  if (error != std::errc() || end != number.data() + number.size() || pid <= 0) return false;
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

/// What cannot be removed stays: it is hidden, and in nobody's way but for its bytes.
void remove_if(const fs::path& directory, const std::function<bool(std::string_view)>& wanted) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (wanted(entry->path().filename().string())) found.push_back(entry->path());
  for (const fs::path& path : found) fs::remove_all(path, error);
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& directory, std::chrono::milliseconds patience) {
  const fs::path path = directory / kLockName;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw Error(ErrorCategory::checkpoint, directory.string(), "needed a directory that can be written",
                std::generic_category().message(errno));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      ::close(descriptor_);
      throw Error(ErrorCategory::checkpoint, directory.string(), "needed the directory for this run alone",
                  fmt::format("{} writes there", read_small_file(path)));
    }
    std::this_thread::sleep_for(kLockPoll);
  }
  const std::string owner = fmt::format("process {} on {}", ::getpid(), device::host_name());
  // The text only serves the message above; the lock holds without it.
  [[maybe_unused]] const bool written =
      ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, owner.data(), owner.size(), 0) > 0;
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string chief_temporary_name(std::int64_t step) { return fmt::format(".step-{:08}.tmp-{}", step, this_process()); }

std::string worker_temporary_name(int rank) { return fmt::format("{}{}-{}", kWorkerPrefix, rank, this_process()); }

void remove_leftovers(const fs::path& directory) { remove_if(directory, is_temporary); }

void remove_leftovers_of_the_dead(const fs::path& directory) { remove_if(directory, is_of_the_dead); }

}  // namespace lockstep::strategy
