#include "lockstep/base/file/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {
namespace {

[[noreturn]] void throw_unreadable(const std::filesystem::path& path, int error,
                                   ErrorCategory category = ErrorCategory::data) {
  throw Error(category, path.string(), "expected a file that can be read",
              std::generic_category().message(error));
}

std::string_view kind_of(const struct stat& status) {
  if (S_ISFIFO(status.st_mode)) return "a pipe or FIFO";
  return S_ISSOCK(status.st_mode) ? "a socket" : "a device";
}

FileStamp stamp_of(const struct stat& status) {
  return {
      static_cast<std::int64_t>(status.st_size),
      static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec};
}

}  // namespace

FileStamp file_stamp(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) throw_unreadable(path, errno);
  return stamp_of(status);
}

FileVersion file_version(const std::filesystem::path& path) { return InputFile(path).version(); }

InputFile::InputFile(std::filesystem::path path, ErrorCategory category)
    : path_(std::move(path)),
      category_(category),
      // O_NONBLOCK: opening a FIFO would wait for a writer. It has no effect on a regular file.
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (!descriptor_.is_open()) throw_unreadable(path_, errno, category_);
  struct stat status = {};
  const int error = ::fstat(descriptor(), &status) != 0 ? errno
                    : S_ISDIR(status.st_mode)           ? EISDIR
                                                        : 0;
  if (error == 0 && S_ISREG(status.st_mode)) return;
  if (error != 0) throw_unreadable(path_, error, category_);
  // Reads are positional and the size must be known; a pipe supports neither.
  throw Error(category_, path_.string(), "expected a regular file",
              fmt::format("got {}", kind_of(status)));
}

FileStamp InputFile::stamp() const {
  struct stat status = {};
  if (::fstat(descriptor(), &status) != 0) throw_unreadable(path_, errno, category_);
  return stamp_of(status);
}

FileVersion InputFile::version() const {
  struct stat status = {};
  if (::fstat(descriptor(), &status) != 0) throw_unreadable(path_, errno, category_);
  constexpr std::size_t kEndBytes = 4096;
  std::array<char, 2 * kEndBytes> ends;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::size_t count = read_at(0, ends.data(), kEndBytes);
  count += read_at(size - std::min<std::uint64_t>(size, kEndBytes), ends.data() + count, kEndBytes);
  return {stamp_of(status), static_cast<std::uint64_t>(status.st_ino),
          XXH3_64bits(ends.data(), count)};
}

std::size_t InputFile::read_at(std::uint64_t offset, char* into, std::size_t count) const {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got =
        ::pread(descriptor(), into + done, count - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      throw_unreadable(path_, errno, category_);
    }
  }
  return done;
}

void InputFile::will_need(std::uint64_t offset, std::uint64_t count) const {
  ::posix_fadvise(descriptor(), static_cast<off_t>(offset), static_cast<off_t>(count),
                  POSIX_FADV_WILLNEED);
}

}  // namespace lockstep::inline v0
