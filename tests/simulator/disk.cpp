#include "tests/simulator/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace lockstep::inline v0::simulator {
namespace {

namespace fs = std::filesystem;

Disk* disk = nullptr;  // null: files are only files

/// Nobody notes what this thread does to files while it exists.
class Unnoticed {
 public:
  Unnoticed() : noticed_(std::exchange(disk, nullptr)) {}
  Unnoticed(const Unnoticed&) = delete;
  Unnoticed& operator=(const Unnoticed&) = delete;
  ~Unnoticed() { disk = noticed_; }

 private:
  Disk* noticed_;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t pick(std::mt19937_64& random, std::size_t below) { return random() % below; }

}  // namespace

Disk::Disk() {
  static const std::string path = "/dev/shm/lockstep-simulate-" + std::to_string(::getpid());
  folder_ = path;
  fs::remove_all(folder_);
  make_folder();
  disk = this;
}

Disk::~Disk() {
  disk = nullptr;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Disk::make_folder() {
  fs::create_directory(folder_);
  directories_ = {{inode_of(AT_FDCWD, folder_.c_str()), {}}};
  files_.clear();
}

void Disk::plan(DiskFault fault, int change, int error) {
  fault_ = fault;
  changes_left_ = change;
  error_ = error;
}

bool Disk::permits() {
  if (fault_ != DiskFault::none && --changes_left_ == 0) {
    if (fault_ == DiskFault::process_ends) ended_.insert(process_);
    if (fault_ == DiskFault::power_fails) has_power_ = false;
    if (std::exchange(fault_, DiskFault::none) == DiskFault::error) return errno = error_, false;
  }
  return !has_ended(process_) || (errno = EIO, false);
}

ino_t Disk::inode_of(int directory, const char* path) const {
  struct stat status = {};
  return ::fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : 0;
}

std::optional<Disk::Place> Disk::place(int directory, const char* path) const {
  const fs::path whole = path;
  const fs::path parent = whole.has_parent_path() ? whole.parent_path() : ".";
  const ino_t inode = inode_of(directory, parent.c_str());
  if (!directories_.contains(inode)) return std::nullopt;
  return Place{inode, whole.filename()};
}

bool Disk::is_mine(int descriptor) const {
  struct stat status = {};
  return ::fstat(descriptor, &status) == 0 &&
         (files_.contains(status.st_ino) || directories_.contains(status.st_ino));
}

void Disk::created(int directory, const char* path) {
  const Place at = *place(directory, path);
  struct stat status = {};
  ::fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW);
  if (S_ISDIR(status.st_mode))
    directories_[status.st_ino];
  else
    files_[status.st_ino];
  directories_[at.directory].pending.push_back({{at.name, status.st_ino}});
}

void Disk::removed(int directory, const char* path) {
  const Place at = *place(directory, path);
  directories_[at.directory].pending.push_back({{at.name, 0}});
}

void Disk::renamed(const char* from, const char* to, bool are_exchanged) {
  const Place old = *place(AT_FDCWD, from);
  const Place now = *place(AT_FDCWD, to);
  const Assignment left{old.name, are_exchanged ? inode_of(AT_FDCWD, from) : 0};
  const Assignment arrived{now.name, inode_of(AT_FDCWD, to)};
  if (old.directory == now.directory) {
    directories_[old.directory].pending.push_back({left, arrived});
  } else {
    directories_[now.directory].pending.push_back({arrived});
    directories_[old.directory].pending.push_back({left});
  }
}

void Disk::synced(int descriptor) {
  struct stat status = {};
  ::fstat(descriptor, &status);
  if (const auto found = directories_.find(status.st_ino); found != directories_.end()) {
    Directory& directory = found->second;
    for (const auto& change : std::exchange(directory.pending, {}))
      for (const auto& [name, inode] : change) directory.synced[name] = inode;
    return;
  }
  files_[status.st_ino] = content_of("/proc/self/fd/" + std::to_string(descriptor));
}

Disk::Tree Disk::remains_of(ino_t inode, const std::map<ino_t, std::string>& live,
                            std::mt19937_64& random) {
  if (const auto found = directories_.find(inode); found != directories_.end()) {
    std::map<std::string, ino_t> names = found->second.synced;
    const auto& pending = found->second.pending;
    const std::size_t kept = pick(random, pending.size() + 1);
    for (std::size_t i = 0; i < kept; ++i)
      for (const auto& [name, now] : pending[i]) names[name] = now;
    Tree tree{.is_directory = true};
    for (const auto& [name, now] : names)
      if (now != 0) tree.entries[name] = remains_of(now, live, random);
    return tree;
  }
  const std::optional<std::string>& synced = files_[inode];
  const auto now = live.find(inode);
  if (now == live.end() || synced == now->second) return {.content = synced.value_or("")};
  const std::string& content = now->second;
  switch (pick(random, 4)) {
    case 0:
      return {.content = synced.value_or("")};
    case 1:
      return {.content = content.substr(0, pick(random, content.size() + 1))};
    case 2:
      return {.content = std::string(content.size(), '\0')};
    default:
      return {.content = content};
  }
}

void Disk::make(const fs::path& path, const Tree& tree) {
  if (!tree.is_directory) {
    std::ofstream(path, std::ios::binary) << tree.content;
    files_[inode_of(AT_FDCWD, path.c_str())] = tree.content;
    return;
  }
  fs::create_directory(path);
  const ino_t inode = inode_of(AT_FDCWD, path.c_str());
  directories_[inode];
  for (const auto& [name, entry] : tree.entries) {
    make(path / name, entry);
    directories_[inode].synced[name] = inode_of(AT_FDCWD, (path / name).c_str());
  }
}

void Disk::restart(std::mt19937_64& random) {
  const Unnoticed here;
  ended_.clear();
  fault_ = DiskFault::none;
  if (std::exchange(has_power_, true)) return;
  std::map<ino_t, std::string> live;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_))
    if (entry.is_regular_file())
      live[inode_of(AT_FDCWD, entry.path().c_str())] = content_of(entry.path());
  const Tree remains = remains_of(inode_of(AT_FDCWD, folder_.c_str()), live, random);
  fs::remove_all(folder_);
  make_folder();
  make(folder_, remains);
}

}  // namespace lockstep::inline v0::simulator

// The functions of the system. Those of the standard library call them too.

using lockstep::simulator::disk;

namespace {

/// Makes a change on the disk, if it is one of its own and the disk permits it.
template <typename Change, typename Note>
int change(bool is_mine, Change change, Note note) {
  if (is_mine && !disk->permits()) return -1;
  const int result = static_cast<int>(change());
  if (is_mine && result >= 0) note();
  return result;
}

bool is_mine(int directory, const char* path) {
  return disk != nullptr && disk->is_mine(directory, path);
}
bool is_mine(int descriptor) { return disk != nullptr && disk->is_mine(descriptor); }

int open_at(int directory, const char* path, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0 && is_mine(directory, path) &&
                       ::faccessat(directory, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
  return change(
      creates, [&] { return ::syscall(SYS_openat, directory, path, flags, mode); },
      [&] { disk->created(directory, path); });
}

mode_t mode_in(int flags, std::va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_at(directory, path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  return change(
      is_mine(descriptor), [&] { return ::syscall(SYS_write, descriptor, bytes, count); }, [] {});
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  return change(
      is_mine(descriptor),
      [&] { return ::syscall(SYS_pwrite64, descriptor, bytes, count, offset); }, [] {});
}

int fsync(int descriptor) {
  return change(
      is_mine(descriptor), [&] { return ::syscall(SYS_fsync, descriptor); },
      [&] { disk->synced(descriptor); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return change(
      is_mine(AT_FDCWD, path), [&] { return ::syscall(SYS_mkdir, path, mode); },
      [&] { disk->created(AT_FDCWD, path); });
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return change(
      is_mine(directory, path), [&] { return ::syscall(SYS_unlinkat, directory, path, flags); },
      [&] { disk->removed(directory, path); });
}

int unlink(const char* path) noexcept { return ::unlinkat(AT_FDCWD, path, 0); }

int rmdir(const char* path) noexcept { return ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char* path) noexcept {
  struct stat status = {};
  return ::lstat(path, &status) == 0 && S_ISDIR(status.st_mode) ? ::rmdir(path) : ::unlink(path);
}

int renameat2(int, const char* from, int, const char* to, unsigned flags) noexcept {
  return change(
      is_mine(AT_FDCWD, from),
      [&] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags); },
      [&] { disk->renamed(from, to, (flags & RENAME_EXCHANGE) != 0); });
}

int rename(const char* from, const char* to) noexcept {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

}  // extern "C"
