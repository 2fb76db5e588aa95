#include "lockstep/data/record/inflated_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::size_t kFirstBytes = std::size_t{1} << 16;  // size of the first read
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;  // size of a write

/// A file without a name: no other program can open or replace it, and it disappears when closed.
FileDescriptor create_unnamed(const std::filesystem::path& directory) {
  FileDescriptor file(::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (file.is_open()) return file;
  // Not all file systems can; mkostemp follows no link and opens no existing file.
  std::string name = (directory / ".lockstep-inflated-XXXXXX").string();
  file = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (file.is_open()) ::unlink(name.c_str());
  return file;
}

/// Half of the free space of its file system.
std::uint64_t max_bytes_on(const InputFile& disk) {
  struct statvfs space = {};
  if (::fstatvfs(disk.descriptor(), &space) != 0) return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize / 2;
}

/// The temporary file of another store; null if it cannot be opened, or is another file.
std::shared_ptr<const InputFile> open_shared(const InflatedStore::Handle& handle, int access) {
  if (handle.owner.pid_namespace != SharedSegment::this_owner().pid_namespace) return nullptr;
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.owner.process, handle.descriptor);
  FileDescriptor file(::open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || status.st_dev != handle.device ||
      status.st_ino != handle.inode)
    return nullptr;
  return std::make_shared<const InputFile>(std::move(file), path);
}

/// A lock of one byte, between processes. The system releases it when a process ends.
class ByteLock {
 public:
  ByteLock(const InputFile& file, std::size_t number)
      : descriptor_(file.descriptor()),
        range_{.l_type = F_WRLCK,
               .l_whence = SEEK_SET,
               .l_start = static_cast<off_t>(number),
               .l_len = 1,
               .l_pid = 0} {
    do is_held_ = ::fcntl(descriptor_, F_OFD_SETLKW, &range_) == 0;
    while (!is_held_ && errno == EINTR);
  }
  ~ByteLock() {
    range_.l_type = F_UNLCK;
    if (is_held_) ::fcntl(descriptor_, F_OFD_SETLK, &range_);
  }
  ByteLock(const ByteLock&) = delete;
  ByteLock& operator=(const ByteLock&) = delete;

  bool is_held() const { return is_held_; }

 private:
  int descriptor_;
  struct flock range_;
  bool is_held_ = false;
};

[[noreturn]] void fail_write(const InputFile& file, const InputFile& disk,
                             const std::string& reason) {
  throw Error(
      ErrorCategory::data, file.path().string(),
      fmt::format("expected space for the decompressed file in {} (--index-dir or TMPDIR sets "
                  "another directory)",
                  disk.path().string()),
      reason);
}

}  // namespace

/// The location of a file in the stores.
struct InflatedStore::Entry {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint32_t store = 0;
  /// The last member, so that it is `absent` in an incompletely written entry.
  enum class State : std::uint32_t { absent, whole, cut } state = State::absent;
};

/// Reads a compressed file up to its end or first damage.
class InflatedStore::Inflation {
 public:
  Inflation(const InputFile& file, Compression compression, bool keep_intact_part)
      : file_(file), keep_intact_part_(keep_intact_part), source_(open_bytes(file, compression)) {}

  /// Returns fewer than `count` bytes only at the end.
  std::size_t read(char* into, std::size_t count) {
    try {
      return source_->read(into, count);
    } catch (const Error&) {
      if (!keep_intact_part_) throw;
      is_whole_ = false;
      return 0;
    }
  }

  /// Reads up to `max_bytes` bytes. Returns whether it reached the end.
  bool read_beginning(std::size_t max_bytes, std::string& bytes) {
    while (bytes.size() < max_bytes) {
      const std::size_t done = bytes.size();
      bytes.resize(std::min(max_bytes, std::max(kFirstBytes, 2 * done)));
      const std::size_t got = read(bytes.data() + done, bytes.size() - done);
      bytes.resize(done + got);
      if (got == 0) return true;
    }
    return false;
  }

  const InputFile& file() const { return file_; }
  bool is_whole() const { return is_whole_; }

 private:
  const InputFile& file_;
  bool keep_intact_part_;
  std::unique_ptr<ByteSource> source_;
  bool is_whole_ = true;
};

/// The caller must hold the mutex.
std::shared_ptr<const InputFile> InflatedStore::open_disk() {
  const char* const named = std::getenv("TMPDIR");
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::create_directories(directory_, ignored);
  for (const std::filesystem::path& directory :
       {directory_, std::filesystem::path(named != nullptr ? named : ""),
        std::filesystem::path("/var/tmp"), std::filesystem::path("/tmp")}) {
    if (disk_ || directory.empty()) continue;
    if (FileDescriptor file = create_unnamed(directory); file.is_open())
      disk_ = std::make_shared<const InputFile>(std::move(file), directory);
  }
  return disk_;
}

/// Writes the rest of a file whose first bytes are `head`, and returns its size.
std::uint64_t InflatedStore::write(Inflation& inflation, std::string_view head, std::uint64_t begin,
                                   std::optional<std::uint64_t> size) const {
  const InputFile& disk = *disk_;
  const std::uint64_t limit = max_bytes_on(disk);
  std::string piece(kWriteBytes, '\0');
  std::uint64_t total = 0;
  while (!head.empty()) {
    total += head.size();
    if (size && total > *size) return total;
    if (total > limit)
      fail_write(inflation.file(), disk,
                 fmt::format("it has more than {} bytes, half of the free space, in {} compressed "
                             "ones; free space, or split it",
                             limit, inflation.file().stamp().size));
    for (std::uint64_t at = begin + total - head.size(); !head.empty();) {
      const ssize_t put =
          ::pwrite(disk.descriptor(), head.data(), head.size(), static_cast<off_t>(at));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0)
        fail_write(inflation.file(), disk,
                   std::generic_category().message(put < 0 ? errno : ENOSPC));
      head.remove_prefix(static_cast<std::size_t>(put));
      at += static_cast<std::uint64_t>(put);
    }
    head = std::string_view(piece).substr(0, inflation.read(piece.data(), piece.size()));
  }
  return total;
}

InflatedFile InflatedStore::keep_in_memory(DecompressedFile inflated) {
  const std::size_t size = inflated.bytes.size();
  held_ += size;
  return {std::move(inflated.bytes), nullptr, 0, size, inflated.is_whole};
}

/// Returns nullopt if there is no disk to write to.
std::optional<InflatedFile> InflatedStore::keep_on_disk(Inflation& inflation, std::string_view head,
                                                        std::optional<std::uint64_t> size) {
  std::unique_lock lock(mutex_);
  InflatedFile file{{}, open_disk(), end_};
  if (!file.disk) return std::nullopt;
  if (size) {  // other threads can write after it at the same time
    end_ += *size;
    lock.unlock();
  }
  file.size = write(inflation, head, file.begin, size);
  file.is_whole = inflation.is_whole();
  if (!size) end_ += file.size;
  return file;
}

InflatedStore::Handle InflatedStore::handle(std::size_t files) {
  const std::lock_guard lock(mutex_);
  struct stat status = {};
  if (!open_disk() || ::fstat(disk_->descriptor(), &status) != 0) return {};
  end_ = files * sizeof(Entry);
  return {SharedSegment::this_owner(), disk_->descriptor(), status.st_dev, status.st_ino};
}

void InflatedStore::share(std::span<const Handle> stores, std::size_t own) {
  own_ = own;
  for (std::size_t i = 0; i < stores.size(); ++i)
    shared_.push_back(i == own ? disk_ : open_shared(stores[i], i == 0 ? O_RDWR : O_RDONLY));
  if (!shared_.front()) shared_.clear();
}

std::optional<InflatedFile> InflatedStore::find_shared(std::size_t number,
                                                       std::optional<std::uint64_t> size,
                                                       bool keep_intact_part) const {
  Entry entry;
  const std::size_t got = shared_.front()->read_at(number * sizeof(entry),
                                                   reinterpret_cast<char*>(&entry), sizeof(entry));
  const bool is_whole = entry.state == Entry::State::whole;
  if (got < sizeof(entry) || entry.state == Entry::State::absent ||
      !(is_whole || keep_intact_part) || (size && *size != entry.size) ||
      entry.store >= shared_.size() || !shared_[entry.store])
    return std::nullopt;
  return InflatedFile{{}, shared_[entry.store], entry.begin, entry.size, is_whole};
}

/// On failure, the other processes decompress the file themselves.
void InflatedStore::publish(std::size_t number, const InflatedFile& file) const {
  const Entry entry{file.begin, file.size, static_cast<std::uint32_t>(own_),
                    file.is_whole ? Entry::State::whole : Entry::State::cut};
  [[maybe_unused]] const ssize_t put =
      ::pwrite(shared_.front()->descriptor(), &entry, sizeof(entry),
               static_cast<off_t>(number * sizeof(entry)));
}

InflatedFile InflatedStore::inflate(const InputFile& file, Compression compression,
                                    std::optional<std::uint64_t> size, bool keep_intact_part,
                                    std::size_t number) {
  if (shared_.empty()) return inflate_here(file, compression, size, keep_intact_part);
  const ByteLock lock(*shared_.front(), number);
  if (lock.is_held())
    if (auto shared = find_shared(number, size, keep_intact_part)) return *std::move(shared);
  InflatedFile inflated = inflate_here(file, compression, size, keep_intact_part);
  if (lock.is_held() && inflated.disk) publish(number, inflated);
  return inflated;
}

InflatedFile InflatedStore::inflate_here(const InputFile& file, Compression compression,
                                         std::optional<std::uint64_t> size, bool keep_intact_part) {
  Inflation inflation(file, compression, keep_intact_part);
  const bool may_hold = shared_.empty() && held_ < kMaxHeld && size.value_or(0) <= kMaxHeldFile;
  std::string head;
  const bool is_all = inflation.read_beginning(may_hold ? kMaxHeldFile : kFirstBytes, head);
  std::optional<InflatedFile> result;
  // Without an intact first header, nothing is read from the file.
  const bool is_read = header_intact(head);
  if (is_read && !(is_all && may_hold)) result = keep_on_disk(inflation, head, size);
  if (!result && is_read && !is_all) {
    result = keep_in_memory(keep_intact_part ? read_intact_part(file, compression)
                                             : DecompressedFile{read_all(file, compression), true});
  } else if (!result) {
    head.shrink_to_fit();
    result = keep_in_memory({std::move(head), inflation.is_whole()});
  }
  if (size && (result->size > *size || (result->is_whole && result->size < *size)))
    throw Error(ErrorCategory::data, file.path().string(),
                fmt::format("expected {} bytes after decompression, as its index states", *size),
                result->size > *size ? std::string("there are more")
                                     : fmt::format("there are {}", result->size));
  return *std::move(result);
}

}  // namespace lockstep::inline v0::data
