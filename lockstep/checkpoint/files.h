// File operations for checkpoints: progress reports to the watchdog, checksums and durability.
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
#include "lockstep/base/file/atomic_file.h"

namespace lockstep::inline v0::checkpoint {

/// Functions that read, write or hash report progress after this many bytes.
inline constexpr std::size_t kFileProgressBytes = std::size_t{1} << 20;

/// How long one file operation (a read, a write, an fsync, a rename) may take and still count as
/// progress. A file server restarts within this time; a hung one is detected by the watchdog
/// afterwards.
inline constexpr std::chrono::minutes kFilePatience{10};

/// During its lifetime, file operations on the thread that created it count as progress of
/// `activity`: a helper thread ticks it as long as the last call of note_file_progress() was at
/// most `patience` ago. So a slow disk is not a stall, but a hung one is. A stopped or killed
/// process does not tick. Only for work that does not wait for other ranks.
class FileProgress {
 public:
  /// Null: no progress reports. Objects on one thread must be destroyed in reverse order of
  /// construction.
  explicit FileProgress(allreduce::Activity* activity,
                        std::chrono::milliseconds patience = kFilePatience);
  FileProgress(const FileProgress&) = delete;
  FileProgress& operator=(const FileProgress&) = delete;
  ~FileProgress();

 private:
  friend void note_file_progress();
  class Ticker;
  std::unique_ptr<Ticker> ticker_;
  FileProgress* outer_ = nullptr;
};

/// Reports that a file operation is complete. Does nothing if this thread has no FileProgress.
void note_file_progress();

/// Size and checksum of a file, to compare between ranks and to store in a manifest.
struct FileDigest {
  std::string name;         ///< file name without directory
  std::uint64_t bytes = 0;  ///< file size
  std::uint64_t xxh3 = 0;   ///< xxh3-64 of all bytes
  bool operator==(const FileDigest&) const = default;
};

/// Throw Error (checkpoint) about the file `path`, with what was expected and either the actual
/// state or the system's error number.
[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view expected,
                         std::string_view actual);
[[noreturn]] void fail(const std::filesystem::path& path, std::string_view expected, int error);

/// Formats a hash as 16 lower-case hexadecimal digits, as in all files and events.
std::string hex16(std::uint64_t hash);
/// Parses the result of hex16(); nullopt for anything else.
std::optional<std::uint64_t> parse_hex16(std::string_view text);

/// Incremental xxh3-64.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();
  void add(std::string_view bytes);  ///< appends `bytes`
  std::uint64_t value() const;       ///< xxh3-64 of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where the bytes of a HashedFile go.
enum class Destination {
  synced,   ///< to a file that is on disk after finish()
  cached,   ///< to a file that is not needed after a crash
  nowhere,  ///< hashed only: no file is created
};

/// A new file that counts and hashes what is written. It appears under its name at finish(), or not
/// at all. All errors are Error (checkpoint) with the path and the system's reason. Reports file
/// progress.
class HashedFile {
 public:
  /// Creates the file under a temporary name. Throws Error (checkpoint), also if `path` is a link
  /// or a device.
  explicit HashedFile(std::filesystem::path path, Destination destination = Destination::synced);
  void write(std::string_view bytes);  ///< writes and hashes; throws Error (checkpoint)
  /// Renames the file to its path. Nothing can be written afterwards.
  FileDigest finish();

 private:
  void flush();

  std::string name_;
  std::optional<AtomicFile> file_;  // none for Destination::nowhere
  std::string pending_;
  Hasher hasher_;
  std::uint64_t bytes_ = 0;
};

/// Reads a file and computes its digest: from the disk if the system's cache can be dropped. Throws
/// Error (checkpoint). Reports file progress.
FileDigest digest_file(const std::filesystem::path& path);

/// The contents of a small file. Throws Error (checkpoint), also if it is larger than 64 MiB.
std::string read_small_file(const std::filesystem::path& path);

/// Makes entries created, renamed or removed in a directory durable. Throws Error (checkpoint).
void sync_directory(const std::filesystem::path& directory);

/// Creates a directory and missing parents; all are durable when the call returns. Throws Error
/// (checkpoint).
void make_directories(const std::filesystem::path& directory);

/// Renames the directory `from` to `to` in the same parent; durable when the call returns. An
/// existing directory `to` is replaced, atomically if the file system supports it, and removed once
/// the new one is on disk. If the file system does not support it, a crash may leave both under
/// hidden names, `from` and `from`.old. Throws Error (checkpoint).
void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to);

/// Free disk space for this process in `directory`, in bytes. Throws Error (checkpoint).
std::uint64_t free_bytes(const std::filesystem::path& directory);

/// Whether `directory` is on a file system that several hosts may share (NFS, Lustre, GPFS, CIFS,
/// FUSE and others).
bool is_on_shared_storage(const std::filesystem::path& directory);

/// Whether the error is caused by a full disk or an exceeded quota.
bool is_out_of_space(const std::exception& error);

/// A new directory with an unpredictable name. The destructor removes it and its contents, unless
/// released. Errors of removal are ignored: the next run removes leftovers.
class TemporaryDirectory {
 public:
  /// Creates PARENT/PREFIX followed by random letters, with mode 0700 if `is_private`. Throws Error
  /// (checkpoint).
  TemporaryDirectory(const std::filesystem::path& parent, const std::string& prefix,
                     bool is_private = false);
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }  ///< path of the directory
  /// Gives up ownership: the directory is not removed.
  void release() { path_.clear(); }

 private:
  std::filesystem::path path_;
};

/// `prefix` followed by 12 random letters and digits.
std::string unpredictable_name(std::string_view prefix);

}  // namespace lockstep::inline v0::checkpoint
