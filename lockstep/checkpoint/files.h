// Shows the watchdog that long work on files goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/allreduce/activity.h"
#include "lockstep/base/atomic_file.h"

namespace lockstep::checkpoint {

/// Functions that read, write or hash report after this many bytes.
inline constexpr std::size_t kFileProgressBytes = std::size_t{1} << 20;

/// How long one operation on a file (a read, a write, an fsync, a rename) may take and still count as progress. A file
/// server that restarts answers within this time; one that never answers is found by the watchdog after it.
inline constexpr std::chrono::minutes kFilePatience{10};

/// While it lives, work on files on the thread that made it is progress of `activity`: a helper thread ticks it, as
/// long as the last call of note_file_progress() is at most `patience` ago. So a slow disk is never a stall, and a hung
/// one is. A process that was stopped or killed does not tick. For work that waits for no other rank.
class FileProgress {
 public:
  /// Null watches nothing. Objects on one thread end in the reverse order of their construction.
  explicit FileProgress(allreduce::Activity* activity, std::chrono::milliseconds patience = kFilePatience);
  FileProgress(const FileProgress&) = delete;
  FileProgress& operator=(const FileProgress&) = delete;
  ~FileProgress();

 private:
  friend void note_file_progress();
  class Ticker;
  std::unique_ptr<Ticker> ticker_;
  FileProgress* outer_ = nullptr;
};

/// Says that an operation on a file is complete. Does nothing where no FileProgress lives on this thread.
void note_file_progress();

// What checkpoints need of files: a checksum computed on the way, and the certainty that the bytes are on the disk.

/// What a file holds, short enough to compare over ranks and to keep in a manifest.
struct FileDigest {
  std::string name;         ///< within its directory
  std::uint64_t bytes = 0;  ///< its size
  std::uint64_t xxh3 = 0;   ///< xxh3-64 of all bytes
  bool operator==(const FileDigest&) const = default;
};

/// A hash as 16 lower-case hexadecimal digits, as all files and events show it.
std::string hex16(std::uint64_t hash);
/// The reverse; nullopt for anything else.
std::optional<std::uint64_t> parse_hex16(std::string_view text);

/// xxh3-64 of bytes that arrive in pieces.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();
  void add(std::string_view bytes);  ///< goes on with these bytes
  std::uint64_t value() const;       ///< xxh3-64 of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where the bytes of a HashedFile go.
enum class Destination {
  synced,   ///< to a file, on the disk when it is finished
  cached,   ///< to a file that nobody needs after a crash
  nowhere,  ///< hashed only: no file is made
};

/// A new file that counts and hashes what is written. It appears under its name at finish(), or not at all.
/// All errors are Error (checkpoint) with the path and the system's reason. Reports file progress.
class HashedFile {
 public:
  /// Begins the file, under another name until it is complete. Throws Error (checkpoint), also where a link or a device
  /// has its name.
  explicit HashedFile(std::filesystem::path path, Destination destination = Destination::synced);
  void write(std::string_view bytes);  ///< writes and hashes. Throws Error (checkpoint).
  /// Nothing can be written afterwards.
  FileDigest finish();

 private:
  void flush();

  std::string name_;
  std::optional<AtomicFile> file_;  // none for Destination::nowhere
  std::string pending_;
  Hasher hasher_;
  std::uint64_t bytes_ = 0;
};

/// Reads a file once and says what it holds: from the disk where the system's cache can be dropped. Throws Error
/// (checkpoint). Reports file progress.
FileDigest digest_file(const std::filesystem::path& path);

/// All bytes of a small file. Throws Error (checkpoint), also where it is longer than 64 MiB: then it is not one of
/// ours.
std::string read_small_file(const std::filesystem::path& path);

/// Makes names that appeared in, or left, a directory durable. Throws Error (checkpoint).
void sync_directory(const std::filesystem::path& directory);

/// Makes a directory and those above it that are missing, each durable in its parent when the call returns. Throws
/// Error (checkpoint).
void make_directories(const std::filesystem::path& directory);

/// Gives the directory `from` the name `to` in the same parent, on the disk when the call returns. A directory that
/// stands there already is replaced, in one step where the file system can do that, and removed once the new one is on
/// the disk. Without such a step a crash may leave both under hidden names, `from` and `from`.old. Throws Error
/// (checkpoint).
void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to);

/// Bytes that this process may still write under `directory`. Throws Error (checkpoint).
std::uint64_t free_bytes(const std::filesystem::path& directory);

/// Whether `directory` lies on a file system that several hosts may share (NFS, Lustre, GPFS, CIFS, FUSE and others).
bool is_on_shared_storage(const std::filesystem::path& directory);

/// Whether the error says that the disk, or the quota of the user, is full.
bool is_out_of_space(const std::exception& error);

/// A new directory with a name that nobody could foresee. It and all in it are removed at the end of its life, unless
/// released. Errors of removal are ignored: the next run removes what is left.
class TemporaryDirectory {
 public:
  /// Creates PARENT/PREFIX and random letters, for this user alone where `is_private`. Throws Error (checkpoint).
  TemporaryDirectory(const std::filesystem::path& parent, const std::string& prefix, bool is_private = false);
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }  ///< as it was made
  /// The directory got another owner or name.
  void release() { path_.clear(); }

 private:
  std::filesystem::path path_;
};

/// A name that nobody could foresee: `prefix` and 12 random letters and digits.
std::string unforeseeable_name(std::string_view prefix);

}  // namespace lockstep::checkpoint
