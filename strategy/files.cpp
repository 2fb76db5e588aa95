#include "strategy/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <utility>

#include "data/record/input_file.h"
#include "device/error.h"

namespace lockstep::strategy {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = 1 << 20;
constexpr std::uint64_t kSmallFileBytes = 64 << 20;

[[noreturn]] void fail(const fs::path& path, std::string_view needed, int error) {
  throw Error(ErrorCategory::checkpoint, path.string(), needed, std::generic_category().message(error));
}

}  // namespace

std::string hex16(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<std::uint64_t> parse_hex16(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
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

void Hasher::add(std::string_view bytes) { XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size()); }
std::uint64_t Hasher::value() const { return XXH3_64bits_digest(state_->xxh3); }

HashedFile::HashedFile(fs::path path, data::Durability durability)
    : file_(std::move(path), durability, ErrorCategory::checkpoint) {}

void HashedFile::write(std::string_view bytes) {
  hasher_.add(bytes);
  bytes_ += bytes.size();
  if (pending_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    file_.write(bytes);
  } else {
    pending_.append(bytes);
  }
}

void HashedFile::flush() {
  file_.write(pending_);
  pending_.clear();
}

FileDigest HashedFile::finish() {
  flush();
  file_.commit();
  return {file_.path().filename().string(), bytes_, hasher_.value()};
}

FileDigest digest_file(const fs::path& path) {
  const data::InputFile file(path, ErrorCategory::checkpoint);
  std::string buffer(kBufferBytes, '\0');
  Hasher hasher;
  std::uint64_t bytes = 0;
  while (const std::size_t got = file.read_at(bytes, buffer.data(), buffer.size())) {
    hasher.add(std::string_view(buffer).substr(0, got));
    bytes += got;
  }
  return {path.filename().string(), bytes, hasher.value()};
}

std::string read_small_file(const fs::path& path) {
  const data::InputFile file(path, ErrorCategory::checkpoint);
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) fail(path, "needed a file that can be read", error.value());
  if (size > kSmallFileBytes)
    throw Error(ErrorCategory::checkpoint, path.string(),
                fmt::format("needed a file of at most {} bytes", kSmallFileBytes), fmt::format("it has {}", size));
  std::string text(size, '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  return text;
}

void sync_directory(const fs::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(directory, "needed a directory", errno);
  // Some network file systems have no such call for directories, and say so with EINVAL.
  const int error = ::fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
  ::close(descriptor);
  if (error != 0) fail(directory, "needed to bring the directory to the disk", error);
}

void replace_directory(const fs::path& from, const fs::path& to) {
  const char* const needed = "needed to give the checkpoint its name";
  if (::rename(from.c_str(), to.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) fail(to, needed, errno);
    fs::path replaced = from;
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
      // A file system without exchange: a crash between the two renames leaves neither under the name, and earlier
      // checkpoints stand.
      replaced += ".old";
      if (::rename(to.c_str(), replaced.c_str()) != 0 || ::rename(from.c_str(), to.c_str()) != 0)
        fail(to, needed, errno);
    }
    std::error_code ignored;
    fs::remove_all(replaced, ignored);
  }
  sync_directory(to.parent_path());
}

std::uint64_t free_bytes(const fs::path& directory) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error) fail(directory, "needed to know its free space", error.value());
  return space.available;
}

TemporaryDirectory::TemporaryDirectory(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  fs::remove_all(path_, error);
  if (!fs::create_directory(path_, error)) fail(path_, "needed to make the directory", error ? error.value() : EEXIST);
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace lockstep::strategy
