#include "data/record/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "device/error.h"

namespace lockstep::data {

AtomicFile::AtomicFile(std::filesystem::path path, Durability durability, ErrorCategory category)
    : path_(std::move(path)), durability_(durability), category_(category) {
  const std::filesystem::path directory = path_.parent_path();
  // Another process, or an earlier crash of one with our number, may hold a name; the first free one is ours.
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = directory / fmt::format(".{}.tmp-{}-{}", path_.filename().string(), ::getpid(), attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail(errno);
  }
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
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
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
  if (durability_ == Durability::synced && ::fsync(descriptor_) != 0 && errno != EINVAL) fail(errno);
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
}

void AtomicFile::publish() {
  LOCKSTEP_CHECK(descriptor_ < 0 && !temporary_.empty());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
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
  throw Error(category_, path_.string(), "needed to write the file", std::generic_category().message(error));
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes, Durability durability) {
  AtomicFile file(path, durability);
  file.write(bytes);
  file.commit();
}

}  // namespace lockstep::data
