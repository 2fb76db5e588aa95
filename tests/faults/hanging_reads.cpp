// A library for LD_PRELOAD whose reads of one file never return on one rank of a job, like reads
// from a lost file server.
//
//   HANGING_FILE   end of the file's path
//   HANGING_RANK   its rank, from the environment of Open MPI or MPICH
//   HANGING_WHEN   path of a file: reads return until it exists
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::string_view setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool hangs(int file) {
  if (setting("HANGING_FILE").empty()) return false;
  const std::string_view wanted = setting("HANGING_RANK");
  if (setting("OMPI_COMM_WORLD_RANK") != wanted && setting("PMI_RANK") != wanted) return false;
  std::array<char, 64> name{};
  std::array<char, 4096> path{};
  std::snprintf(name.data(), name.size(), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(name.data(), path.data(), path.size());
  if (length <= 0) return false;
  if (!std::string_view(path.data(), static_cast<std::size_t>(length))
           .ends_with(setting("HANGING_FILE")))
    return false;
  return access(std::getenv("HANGING_WHEN"), F_OK) == 0;
}

void wait_for_ever(int file) {
  while (hangs(file)) pause();
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t read(int file, void* into, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, void*, size_t)>("read");
  wait_for_ever(file);
  return real(file, into, bytes);
}

ssize_t pread(int file, void* into, size_t bytes, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  wait_for_ever(file);
  return real(file, into, bytes, offset);
}

ssize_t pread64(int file, void* into, size_t bytes, off64_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
  wait_for_ever(file);
  return real(file, into, bytes, offset);
}

}  // extern "C"
