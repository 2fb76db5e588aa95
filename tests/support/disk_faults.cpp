// Preloaded, or linked into a test program, it simulates a disk that is slow, full or failing, has
// no locks or no exchange of names, or loses power; or it records disk operations. It is controlled
// by environment variables, which are read in each call:
//
//   LOCKSTEP_DISK_UNDER=TEXT            affects only paths that contain TEXT
//   LOCKSTEP_DISK_RECORD=FILE           appends a line per operation that changes names or syncs
//   LOCKSTEP_DISK_CRASH_AT=N            the process ends after the N-th of these operations
//   LOCKSTEP_DISK_NO_EXCHANGE=1         renameat2 fails with EINVAL
//   LOCKSTEP_DISK_NO_LOCKS=1            flock fails with ENOLCK
//   LOCKSTEP_DISK_FAIL_AT=N, _ERROR=E   the N-th write, fsync, rename or close fails with errno E
//   LOCKSTEP_DISK_FAIL_ONLY=write       counts calls of this name only
//   LOCKSTEP_DISK_FULL=FILE             while FILE exists, writes fail with ENOSPC
//   LOCKSTEP_DISK_DAMAGE=TEXT           flips a bit of writes to paths that contain TEXT
//   LOCKSTEP_DISK_FSYNC_MS, _READ_MS    duration of an fsync, or of a read
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<int> changes{0};
std::atomic<int> calls{0};

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int number(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

bool is_meant(const std::string& path) {
  const char* const under = std::getenv("LOCKSTEP_DISK_UNDER");
  return under != nullptr && path.find(under) != std::string::npos;
}

std::string path_of(int descriptor) {
  std::array<char, PATH_MAX> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  return size < 0 ? std::string() : std::string(path.data(), static_cast<std::size_t>(size));
}

/// After an operation that has happened.
void note(const std::string& line) {
  if (const char* const record = std::getenv("LOCKSTEP_DISK_RECORD")) {
    const int file = ::open(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const std::string text = line + "\n";
    ::syscall(SYS_write, file, text.data(), text.size());
    ::syscall(SYS_close, file);
  }
  if (const int last = number("LOCKSTEP_DISK_CRASH_AT"); last > 0 && ++changes == last)
    ::_exit(137);
}

/// Whether this call is the one that fails; errno is set then.
bool fails(const char* call) {
  const int at = number("LOCKSTEP_DISK_FAIL_AT");
  if (at == 0) calls = 0;  // the next test counts anew
  const char* const only = std::getenv("LOCKSTEP_DISK_FAIL_ONLY");
  if (at == 0 || (only != nullptr && std::strcmp(only, call) != 0) || ++calls != at) return false;
  errno = number("LOCKSTEP_DISK_ERROR");
  return true;
}

bool is_full() {
  const char* const file = std::getenv("LOCKSTEP_DISK_FULL");
  if (file == nullptr || ::access(file, F_OK) != 0) return false;
  errno = ENOSPC;
  return true;
}

void wait_for(const char* name) {
  if (const int milliseconds = number(name); milliseconds > 0)
    ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
}

/// `directory` and `name` as the *at functions take them.
std::string joined(int directory, const char* name) {
  return name[0] == '/' || directory == AT_FDCWD ? std::string(name)
                                                 : path_of(directory) + "/" + name;
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) {
  const bool meant = is_meant(from) || is_meant(to);
  if (meant && fails("rename")) return -1;
  const int result = real<int (*)(const char*, const char*)>("rename")(from, to);
  if (result == 0 && meant) note(std::string("rename ") + from + " " + to);
  return result;
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) {
  const bool meant = is_meant(from) || is_meant(to);
  if (meant && number("LOCKSTEP_DISK_NO_EXCHANGE") != 0) {
    errno = EINVAL;
    return -1;
  }
  const int result =
      static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
  if (result == 0 && meant) note(std::string("exchange ") + from + " " + to);
  return result;
}

int mkdir(const char* path, mode_t mode) {
  const int result = real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
  if (result == 0 && is_meant(path)) note(std::string("mkdir ") + path);
  return result;
}

int unlink(const char* path) {
  const int result = real<int (*)(const char*)>("unlink")(path);
  if (result == 0 && is_meant(path)) note(std::string("unlink ") + path);
  return result;
}

int unlinkat(int directory, const char* name, int flags) {
  const std::string path = joined(directory, name);
  const int result = real<int (*)(int, const char*, int)>("unlinkat")(directory, name, flags);
  if (result == 0 && is_meant(path)) note("unlink " + path);
  return result;
}

int rmdir(const char* path) {
  const int result = real<int (*)(const char*)>("rmdir")(path);
  if (result == 0 && is_meant(path)) note(std::string("unlink ") + path);
  return result;
}

int fsync(int descriptor) {
  const std::string path = path_of(descriptor);
  const bool meant = is_meant(path);
  if (meant) wait_for("LOCKSTEP_DISK_FSYNC_MS");
  if (meant && fails("fsync")) return -1;
  const int result = real<int (*)(int)>("fsync")(descriptor);
  if (result == 0 && meant) note("fsync " + path);
  return result;
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (std::getenv("LOCKSTEP_DISK_UNDER") != nullptr) {
    const std::string path = path_of(descriptor);
    if (is_meant(path)) {
      if (fails("write") || is_full()) return -1;
      if (std::getenv("LOCKSTEP_DISK_RECORD") != nullptr) note("write " + path);
      const char* const damaged = std::getenv("LOCKSTEP_DISK_DAMAGE");
      if (damaged != nullptr && count > 0 && path.find(damaged) != std::string::npos) {
        std::string other(static_cast<const char*>(bytes), count);
        other.back() = static_cast<char>(other.back() ^ 1);
        return ::syscall(SYS_write, descriptor, other.data(), count);
      }
    }
  }
  return ::syscall(SYS_write, descriptor, bytes, count);
}

int close(int descriptor) {
  const bool fail = number("LOCKSTEP_DISK_FAIL_AT") != 0 && descriptor >= 0 &&
                    is_meant(path_of(descriptor)) && fails("close");
  const int error = errno;
  const int result = static_cast<int>(::syscall(SYS_close, descriptor));
  if (!fail) return result;
  errno = error;
  return -1;
}

ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) {
  if (number("LOCKSTEP_DISK_READ_MS") > 0 && is_meant(path_of(descriptor)))
    wait_for("LOCKSTEP_DISK_READ_MS");
  return ::syscall(SYS_pread64, descriptor, bytes, count, offset);
}

ssize_t pread64(int descriptor, void* bytes, size_t count, off64_t offset) {
  return pread(descriptor, bytes, count, offset);
}

// By its symbol: a struct of the C library has the name, too.
int pretended_flock(int descriptor, int operation) __asm__("flock");
int pretended_flock(int descriptor, int operation) {
  if (number("LOCKSTEP_DISK_NO_LOCKS") != 0 && is_meant(path_of(descriptor))) {
    errno = ENOLCK;
    return -1;
  }
  return real<int (*)(int, int)>("flock")(descriptor, operation);
}

}  // extern "C"
