// Preloaded, it simulates a full or failing disk: one call that writes, syncs, renames or closes a
// file below the directory FAILING_BELOW fails. It is the call number FAILING_CALL, from 1, and
// fails with the errno FAILING_ERROR.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is_below(const char* path) {
  const char* directory = std::getenv("FAILING_BELOW");
  return directory != nullptr && std::strncmp(path, directory, std::strlen(directory)) == 0;
}

bool is_below(int descriptor) {
  char link[64];
  char path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = ::readlink(link, path, sizeof path - 1);
  if (size < 0) return false;
  path[size] = '\0';
  return is_below(path);
}

/// Counts a call, and returns whether it must fail.
bool fails(const char* name) {
  static std::atomic<int> calls{0};
  const char* wanted = std::getenv("FAILING_CALL");
  const char* error = std::getenv("FAILING_ERROR");
  if (wanted == nullptr || error == nullptr || ++calls != std::atoi(wanted)) return false;
  char text[128];
  const int size = std::snprintf(text, sizeof text, "pretend: call %s, %s, fails\n", wanted, name);
  ::syscall(SYS_write, STDERR_FILENO, text, size);
  errno = std::atoi(error);
  return true;
}

template <typename F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static auto* const call = real<ssize_t(int, const void*, size_t)>("write");
  if (is_below(descriptor) && fails("write")) return -1;
  return call(descriptor, bytes, size);
}

ssize_t pwrite64(int descriptor, const void* bytes, size_t size, off64_t offset) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  if (is_below(descriptor) && fails("pwrite")) return -1;
  return call(descriptor, bytes, size, offset);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return pwrite64(descriptor, bytes, size, offset);
}

int fsync(int descriptor) {
  static auto* const call = real<int(int)>("fsync");
  if (is_below(descriptor) && fails("fsync")) return -1;
  return call(descriptor);
}

int fdatasync(int descriptor) {
  static auto* const call = real<int(int)>("fdatasync");
  if (is_below(descriptor) && fails("fdatasync")) return -1;
  return call(descriptor);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const call = real<int(const char*, const char*)>("rename");
  if (is_below(to) && fails("rename")) return -1;
  return call(from, to);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
  static auto* const call = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (is_below(to) && fails("renameat2")) return -1;
  return call(from_directory, from, to_directory, to, flags);
}

// The descriptor is closed despite the error, as on a network file system.
int close(int descriptor) {
  static auto* const call = real<int(int)>("close");
  const bool counts = is_below(descriptor);
  const int status = call(descriptor);
  return counts && fails("close") ? -1 : status;
}
}
