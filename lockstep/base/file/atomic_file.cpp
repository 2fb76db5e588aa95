#include "lockstep/base/file/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/ownership.h"
#include "lockstep/base/system/process.h"

namespace lockstep::inline v0 {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".tmp-";
// Limit for the name within the temporary name; file systems allow 255 bytes in all.
constexpr std::size_t kMaxNameBytes = 150;

std::string name_prefix(std::string_view name) {
  return fmt::format(".{}{}", name.substr(0, kMaxNameBytes), kMark);
}

// `.NAME.tmp-MARK-RANDOM`, with process_mark(). The random part prevents an attacker from creating
// a link under this name in advance; O_EXCL rejects an existing one. Not mkstemp: it creates the
// file with mode 0600, and the umask cannot be read without changing it.
std::string temporary_name(std::string_view name) {
  std::uint64_t random = 0;
  while (::getrandom(&random, sizeof(random), 0) != sizeof(random)) {
  }
  return fmt::format("{}{}-{:016x}", name_prefix(name), process_mark(), random);
}

/// Resolves `path` while it is a symbolic link, including a dangling one. Links that do not contain
/// a path, such as /proc/self/fd/1 of a pipe, resolve to a path that does not exist.
/// Throws Error (`category`) for a link that another user may have made as a trap.
fs::path without_links(fs::path path, ErrorCategory category) {
  constexpr int kMaxLinks = 40;  // as in the kernel
  for (int links = 0; links < kMaxLinks; ++links) {
    const auto link = read_link(path);
    if (!link) break;
    if (link->is_foreign)
      throw Error(category, path.string(), "expected a file to write",
                  "got a link that another user made in a directory that all users may write");
    path = path.parent_path() / link->target;
  }
  return path;
}

bool is_same_file(const fs::path& path, const struct stat& status) {
  struct stat other = {};
  return ::stat(path.c_str(), &other) == 0 && other.st_dev == status.st_dev &&
         other.st_ino == status.st_ino;
}

}  // namespace

AtomicFile::AtomicFile(fs::path path, Durability durability, ErrorCategory category,
                       Existing existing)
    : path_(std::move(path)), target_(path_), durability_(durability), category_(category) {
  struct stat status = {};
  const bool follow = existing == Existing::any_kind;
  const bool exists =
      ::fstatat(AT_FDCWD, path_.c_str(), &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) == 0;
  if (!exists && errno != ENOENT) fail(errno);
  if (exists && S_ISDIR(status.st_mode)) fail(EISDIR);
  if (exists && S_ISBLK(status.st_mode))
    throw Error(category_, path_.string(), "expected a file to write",
                "got a block device, which may hold a disk");
  if (!follow && exists && !S_ISREG(status.st_mode))
    throw Error(category_, path_.string(), "expected a regular file",
                "got a link or a special file");
  if (follow) target_ = without_links(path_, category_);
  if (!exists || (S_ISREG(status.st_mode) && is_same_file(target_, status)))
    open_temporary();
  else
    open_directly();
}

void AtomicFile::open_temporary() {
  while (descriptor_ < 0) {
    temporary_ = target_.parent_path() / temporary_name(target_.filename().native());
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) return;
    const int error = std::exchange(errno, 0);
    temporary_.clear();  // it belongs to another process
    if (error != EEXIST) fail(error);
  }
}

void AtomicFile::open_directly() {
  is_atomic_ = false;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
  if (descriptor_ < 0) fail(errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::string_view bytes) {
  LOCKSTEP_CHECK_OP(descriptor_, >=, 0);
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      fail(errno);
    }
  }
}

void AtomicFile::write_at(std::uint64_t offset, std::string_view bytes) {
  LOCKSTEP_CHECK_OP(descriptor_, >=, 0);
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    } else if (errno != EINTR) {
      throw_unwritable(errno);
    }
  }
}

void AtomicFile::finish() {
  LOCKSTEP_CHECK_OP(descriptor_, >=, 0);
  // Some file systems report a full disk only here. EINVAL: a special file, which cannot be synced.
  if (durability_ == Durability::synced && ::fsync(descriptor_) != 0 && errno != EINVAL)
    fail(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void AtomicFile::publish() {
  LOCKSTEP_CHECK(descriptor_ < 0);
  if (!is_atomic_) return;
  LOCKSTEP_CHECK(!temporary_.empty());
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

void AtomicFile::commit() {
  finish();
  publish();
}

void AtomicFile::fail(int error) {
  discard();
  throw_unwritable(error);
}

void AtomicFile::throw_unwritable(int error) const {
  throw Error(category_, path_.string(), "expected to write the file",
              std::generic_category().message(error));
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void write_file_atomically(const fs::path& path, std::string_view bytes, Durability durability) {
  AtomicFile file(path, durability);
  file.write(bytes);
  file.commit();
}

void remove_abandoned_temporaries(const fs::path& directory, std::string_view name) noexcept {
  try {
    std::error_code error;
    const std::string prefix = name.empty() ? "." : name_prefix(name);
    fs::directory_iterator entry(directory.empty() ? "." : directory, error);
    for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
      const std::string found = entry->path().filename();
      if (!found.starts_with(prefix) || found.rfind(kMark) == std::string::npos ||
          !is_process_gone(maker_of(found)))
        continue;
      std::error_code ignored;
      if (entry->symlink_status(ignored).type() == fs::file_type::regular)
        fs::remove(entry->path(), ignored);
    }
  } catch (const std::exception&) {  // out of memory: the next run removes the files
  }
}

}  // namespace lockstep::inline v0
