#include "lockstep/checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};

thread_local FileProgress* current = nullptr;

}  // namespace

class FileProgress::Ticker {
 public:
  Ticker(allreduce::Activity& activity, std::chrono::milliseconds patience)
      : activity_(activity), patience_(patience) {
    note();
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error&) {
      // Without a thread, completed operations still tick.
    }
  }

  void note() {
    last_note_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    activity_.tick();
  }

 private:
  void run(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, stop, kTick, [&] { return stop.stop_requested(); })) {
      const Clock::time_point last{Clock::duration(last_note_.load(std::memory_order_relaxed))};
      if (Clock::now() - last <= patience_) activity_.tick();
    }
  }

  allreduce::Activity& activity_;
  std::chrono::milliseconds patience_;
  std::atomic<Clock::rep> last_note_{0};
  std::jthread thread_;  // last member: it is destroyed first
};

FileProgress::FileProgress(allreduce::Activity* activity, std::chrono::milliseconds patience)
    : outer_(std::exchange(current, this)) {
  if (activity != nullptr) ticker_ = std::make_unique<Ticker>(*activity, patience);
}

FileProgress::~FileProgress() { current = outer_; }

void note_file_progress() {
  if (current != nullptr && current->ticker_ != nullptr) current->ticker_->note();
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = kFileProgressBytes;
constexpr std::uint64_t kSmallFileBytes = 64 << 20;

}  // namespace

void refuse(const fs::path& path, std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::checkpoint, path.string(), expected, actual);
}

void fail(const fs::path& path, std::string_view expected, int error) {
  refuse(path, expected, std::generic_category().message(error));
}

std::string hex16(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<std::uint64_t> parse_hex16(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return std::nullopt;
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

struct Hasher::State {
  State() : xxh3(XXH3_createState()) {
    if (xxh3 == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh3);
  }
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH3_state_t* xxh3;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::add(std::string_view bytes) {
  XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size());
}
std::uint64_t Hasher::value() const { return XXH3_64bits_digest(state_->xxh3); }

HashedFile::HashedFile(fs::path path, Destination destination) : name_(path.filename().string()) {
  if (destination == Destination::nowhere) return;
  file_.emplace(std::move(path),
                destination == Destination::synced ? Durability::synced : Durability::cached,
                ErrorCategory::checkpoint, Existing::regular_only);
}

void HashedFile::write(std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kBufferBytes))) {
    const std::string_view piece = bytes.substr(0, kBufferBytes);
    hasher_.add(piece);
    bytes_ += piece.size();
    if (pending_.size() + piece.size() > kBufferBytes) flush();
    if (!file_) {
      note_file_progress();
    } else if (piece.size() == kBufferBytes) {
      file_->write(piece);
      note_file_progress();
    } else {
      pending_.append(piece);
    }
  }
}

void HashedFile::flush() {
  if (file_) file_->write(pending_);
  pending_.clear();
  note_file_progress();
}

FileDigest HashedFile::finish() {
  flush();
  if (file_) file_->commit();
  note_file_progress();
  return {name_, bytes_, hasher_.value()};
}

FileDigest digest_file(const fs::path& path) {
  const InputFile file(path, ErrorCategory::checkpoint);
  // Otherwise the checksum of a file that was just written would be that of the page cache.
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  std::string buffer(kBufferBytes, '\0');
  Hasher hasher;
  std::uint64_t bytes = 0;
  while (const std::size_t got = file.read_at(bytes, buffer.data(), buffer.size())) {
    hasher.add(std::string_view(buffer).substr(0, got));
    bytes += got;
    note_file_progress();
  }
  return {path.filename().string(), bytes, hasher.value()};
}

std::string read_small_file(const fs::path& path) {
  const InputFile file(path, ErrorCategory::checkpoint);
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) fail(path, "expected a file that can be read", error.value());
  if (size > kSmallFileBytes)
    throw Error(ErrorCategory::checkpoint, path.string(),
                fmt::format("expected a file of at most {} bytes", kSmallFileBytes),
                fmt::format("it has {}", size));
  std::string text(size, '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  return text;
}

void sync_directory(const fs::path& directory) {
  const FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.is_open()) fail(directory, "expected a directory", errno);
  // Some network file systems do not support fsync of directories and return EINVAL. EROFS: there
  // is nothing to sync.
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS)
    fail(directory, "expected to sync the directory", errno);
  note_file_progress();
}

void make_directories(const fs::path& directory) {
  // Does nothing for a parent without read permission, which cannot be opened for fsync; its
  // durability is then up to the file system.
  const auto sync = [](const fs::path& parent) {
    if (!parent.empty() && ::access(parent.c_str(), R_OK) == 0) sync_directory(parent);
  };
  fs::path made;
  fs::path existing;  // the parent of the deepest directory that exists
  for (const fs::path& part : directory) {
    const fs::path parent = made.empty() ? fs::path(".") : made;
    made /= part;
    if (part.empty()) continue;  // after a trailing slash
    if (::mkdir(made.c_str(), 0777) != 0) {
      const int error = errno;
      struct stat status = {};
      const bool exists = ::stat(made.c_str(), &status) == 0;
      if (exists && S_ISDIR(status.st_mode)) {
        existing = parent;
        continue;
      }
      fail(directory, "expected a directory for checkpoints that can be written",
           exists ? ENOTDIR : error);
    }
    sync(std::exchange(existing, {}));
    sync(parent);
  }
  // An earlier run may have made it, and ended before the sync.
  sync(existing);
}

void replace_directory(const fs::path& from, const fs::path& to) {
  const char* const expected = "expected to rename the checkpoint";
  fs::path replaced;
  if (::rename(from.c_str(), to.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) fail(to, expected, errno);
    replaced = from;
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
      // The file system has no atomic exchange. A crash between the two renames leaves both under
      // hidden names, and recover_checkpoints() of the next run renames the new one.
      replaced += ".old";
      if (::rename(to.c_str(), replaced.c_str()) != 0) fail(to, expected, errno);
      if (::rename(from.c_str(), to.c_str()) != 0) {
        const int error = errno;
        (void)::rename(replaced.c_str(), to.c_str());
        fail(to, expected, error);
      }
    }
  }
  sync_directory(to.parent_path());
  if (replaced.empty()) return;
  // After the sync only: a power loss before it could undo the renames but not the removal.
  std::error_code ignored;
  fs::remove_all(replaced, ignored);
  note_file_progress();
}

std::uint64_t free_bytes(const fs::path& directory) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error) fail(directory, "expected to read the free space", error.value());
  return space.available;
}

bool is_on_shared_storage(const fs::path& directory) {
  // From linux/magic.h, and from the sources of the file systems that it does not list.
  constexpr std::array<std::uint32_t, 15> kShared{
      0x6969,      // NFS
      0x517B,      // SMB
      0xFF534D42,  // CIFS
      0xFE534D42,  // SMB 2
      0x0BD00BD0,  // Lustre
      0x47504653,  // GPFS
      0x00C36400,  // Ceph
      0x65735546,  // FUSE: clients of GlusterFS, BeeGFS and JuiceFS; sshfs
      0x19830326,  // BeeGFS
      0x5346414F,  // AFS
      0x6B414653,  // kAFS
      0x01021997,  // 9P
      0x01161970,  // GFS2
      0x7461636F,  // OCFS2
      0xAAD7AAEA,  // PanFS
  };
  struct statfs status = {};
  if (::statfs(directory.c_str(), &status) != 0) return false;
  return std::ranges::find(kShared, static_cast<std::uint32_t>(status.f_type)) != kShared.end();
}

bool is_out_of_space(const std::exception& error) {
  const std::string_view text = error.what();
  return std::ranges::any_of(std::array{ENOSPC, EDQUOT}, [&](int number) {
    return text.find(std::generic_category().message(number)) != std::string_view::npos;
  });
}

std::string unpredictable_name(std::string_view prefix) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";
  std::array<unsigned char, 12> random{};
  while (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
  }
  std::string name(prefix);
  for (const unsigned char byte : random) name += kLetters[byte % kLetters.size()];
  return name;
}

TemporaryDirectory::TemporaryDirectory(const fs::path& parent, const std::string& prefix,
                                       bool is_private) {
  // Not mkdtemp: it creates every directory with mode 0700, also one that becomes a checkpoint.
  int error = 0;
  do {
    path_ = parent / unpredictable_name(prefix);
    error = ::mkdir(path_.c_str(), is_private ? 0700 : 0777) == 0 ? 0 : errno;
  } while (error == EEXIST);
  if (error != 0) fail(std::exchange(path_, {}), "expected to create the directory", error);
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep::inline v0::checkpoint
