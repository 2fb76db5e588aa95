#include "lockstep/checkpoint/lease.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files.h"

namespace lockstep::inline v0::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kLeaseName = ".lease";
constexpr milliseconds kPoll{50};
constexpr std::size_t kMaxLeaseBytes = 1024;

std::int64_t nanoseconds(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

/// The contents of a lease file: "PROCESS NAMESPACE START RANDOM HOST".
struct LeaseFile {
  std::string text;
  std::int64_t renewed = 0;  ///< nanoseconds, by the clock of the file system

  std::string_view field_and_rest(int number) const {
    std::string_view rest = text;
    for (; number > 0; --number) rest.remove_prefix(std::min(rest.size(), rest.find(' ') + 1));
    return rest;
  }
  std::string_view field(int number) const {
    const std::string_view rest = field_and_rest(number);
    return rest.substr(0, rest.find(' '));
  }
  ProcessIdentity process() const {
    return {.id = parse_number<pid_t>(field(0)).value_or(0),
            .start = parse_number<std::uint64_t>(field(2)).value_or(0)};
  }
  bool is_of_visible_process() const {
    return !process_namespace().empty() && field(1) == process_namespace();
  }
  /// "process 7 on host"
  std::string holder() const {
    return fmt::format("process {} on {}", process().id, field_and_rest(4));
  }
};

/// Reads the lease; nullopt if there is none.
std::optional<LeaseFile> read_lease(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  if (!file.is_open()) fail(path, "expected a lease that can be read", errno);
  struct stat status = {};
  std::array<char, kMaxLeaseBytes> bytes{};
  const bool is_file = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  const ssize_t got = is_file ? ::read(file.get(), bytes.data(), bytes.size()) : -1;
  if (got < 0) fail(path, "expected a lease file", EINVAL);
  return LeaseFile{{bytes.data(), static_cast<std::size_t>(got)}, nanoseconds(status)};
}

/// Creates the lease; false if it exists. Removes an incomplete one.
bool create(const fs::path& path, const std::string& text) {
  const FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file.is_open() && errno == EEXIST) return false;
  if (!file.is_open()) fail(path, "expected a directory that can be written", errno);
  if (::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
    return true;
  const int error = errno;
  ::unlink(path.c_str());
  fail(path, "expected to write the file", error);
}

/// The clock of the file system of `directory`.
class FileSystemClock {
 public:
  explicit FileSystemClock(const fs::path& directory)
      : path_(directory / unpredictable_name(".lease.tmp-")),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
    if (!file_.is_open()) fail(path_, "expected a directory that can be written", errno);
  }
  FileSystemClock(const FileSystemClock&) = delete;
  FileSystemClock& operator=(const FileSystemClock&) = delete;
  ~FileSystemClock() { ::unlink(path_.c_str()); }

  std::int64_t now() const {
    struct stat status = {};
    if (::futimens(file_.get(), nullptr) != 0 || ::fstat(file_.get(), &status) != 0)
      fail(path_, "expected the time of the file system", errno);
    return nanoseconds(status);
  }

 private:
  fs::path path_;
  FileDescriptor file_;
};

/// Removes the lease that was read, unless another run has already replaced it.
void remove_lease(const fs::path& path, const LeaseFile& seen) {
  const fs::path aside = path.parent_path() / unpredictable_name(".lease.tmp-");
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  if (const std::optional<LeaseFile> moved = read_lease(aside); moved && moved->text != seen.text)
    (void)::link(aside.c_str(), path.c_str());  // if this fails, check_held() of its holder throws
  ::unlink(aside.c_str());
}

}  // namespace

class DirectoryLease::Renewal {
 public:
  Renewal(fs::path path, std::string text, milliseconds period)
      : thread_(
            [path = std::move(path), text = std::move(text), period](const std::stop_token& stop) {
              std::mutex mutex;
              std::condition_variable_any ended;
              std::unique_lock lock(mutex);
              while (!ended.wait_for(lock, stop, period, [&] { return stop.stop_requested(); }))
                renew(path, text);
            }) {}

 private:
  // Errors are ignored: a server that is not responding now may respond before the lease expires.
  static void renew(const fs::path& path, const std::string& text) {
    try {
      if (const std::optional<LeaseFile> seen = read_lease(path); seen && seen->text == text)
        (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    } catch (const Error&) {
    }
  }

  std::jthread thread_;
};

DirectoryLease::DirectoryLease(const fs::path& directory, milliseconds patience,
                               const LeaseTimes& times, const WaitReport& report)
    : path_(directory / kLeaseName),
      text_(fmt::format("{} {} {} {} {}", ::getpid(),
                        process_namespace().empty() ? "?" : process_namespace(),
                        this_process().start, unpredictable_name(""), host_name())) {
  const auto deadline = Clock::now() + patience;
  std::optional<FileSystemClock> clock;
  std::optional<LeaseFile> first;
  while (!create(path_, text_)) {
    const std::optional<LeaseFile> seen = read_lease(path_);
    if (!seen) continue;
    if (!clock) clock.emplace(directory);
    const auto age = std::chrono::nanoseconds(clock->now() - seen->renewed);
    if ((seen->is_of_visible_process() && is_process_gone(seen->process())) ||
        age >= times.lifetime) {
      remove_lease(path_, *seen);
      continue;
    }
    if (!first || first->text != seen->text) first = seen;
    if (report) report(seen->holder());
    const bool is_alive = seen->is_of_visible_process() || seen->renewed != first->renewed;
    if (is_alive && Clock::now() >= deadline)
      throw Error(
          ErrorCategory::checkpoint, directory.string(), "expected exclusive use of the directory",
          fmt::format("{} writes there: it renewed {} {:.1f} s ago (a lease lasts {:g} s)",
                      seen->holder(), path_.string(), std::chrono::duration<double>(age).count(),
                      std::chrono::duration<double>(times.lifetime).count()));
    std::this_thread::sleep_for(kPoll);
  }
  renewal_ = std::make_unique<Renewal>(path_, text_, times.renewal);
}

DirectoryLease::~DirectoryLease() {
  renewal_.reset();
  try {
    if (const std::optional<LeaseFile> seen = read_lease(path_); seen && seen->text == text_)
      ::unlink(path_.c_str());
  } catch (const Error&) {  // the lease expires
  }
}

void DirectoryLease::check_held() const {
  const std::optional<LeaseFile> seen = read_lease(path_);
  if (seen && seen->text == text_) return;
  throw Error(ErrorCategory::checkpoint, path_.parent_path().string(),
              "expected exclusive use of the directory",
              seen
                  ? fmt::format("{} has taken it over, because this one did not renew its lease in "
                                "time",
                                seen->holder())
                  : "its lease is gone");
}

}  // namespace lockstep::inline v0::checkpoint
