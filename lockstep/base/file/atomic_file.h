// Atomic file creation: a file appears complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

/// Whether commit() waits until the bytes are on disk. Files that can be regenerated, such as an
/// index, use `cached`.
enum class Durability { synced, cached };

/// What an AtomicFile does if its path exists and is not a regular file. Such a file is never
/// replaced.
enum class Existing {
  /// Follows a symbolic link and replaces its target. Writes to a character device or a FIFO
  /// directly. For outputs that the user names.
  any_kind,
  /// Error. For files stored next to data of unknown origin, where a link could point anywhere.
  regular_only,
};

/// Writes under a hidden temporary name in the same directory and renames at publish(). Until then,
/// and after any failure, an existing file at `path` is untouched. The destructor removes the
/// temporary file if it was not published; remove_abandoned_temporaries() removes those of killed
/// processes. A device or a FIFO (Existing::any_kind) has no temporary file: it receives the bytes
/// as they are written.
class AtomicFile {
 public:
  /// Throws Error if the directory is not writable, or if `path` is a directory or anything else
  /// that cannot be an output. Waits for a reader if it is a FIFO. `category` applies to all errors
  /// of this file.
  explicit AtomicFile(std::filesystem::path path, Durability durability = Durability::synced,
                      ErrorCategory category = ErrorCategory::data,
                      Existing existing = Existing::any_kind);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::filesystem::path& path() const { return path_; }  ///< final path of the file

  /// Throws Error, for example if the disk is full; the file is then discarded.
  void write(std::string_view bytes);

  /// Writes at byte `offset`, independently of write(). Thread-safe. Throws Error; the file is then
  /// not discarded.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// The path until publish(); empty if the bytes go directly to a device or a FIFO. A descriptor
  /// opened by this path reads what was written so far and stays valid after publish().
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Makes the bytes durable (unless `cached`) and closes the file; nothing can be written
  /// afterwards. Throws Error. Some file systems report a full disk only here.
  void finish();

  /// Renames the finished file to path(). Throws Error.
  void publish();

  /// finish() and publish().
  void commit();

 private:
  void open_temporary();
  void open_directly();
  [[noreturn]] void fail(int error);
  [[noreturn]] void throw_unwritable(int error) const;
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path target_;  // path_ with symbolic links resolved
  std::filesystem::path temporary_;
  Durability durability_;
  ErrorCategory category_;
  bool is_atomic_ = true;
  int descriptor_ = -1;
};

/// Writes `bytes` as one AtomicFile.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           Durability durability = Durability::synced);

/// Removes temporary files that killed processes of this host and PID namespace left in
/// `directory`: all of them, or those of the file `name`. Temporary files of running processes, of
/// other hosts and from before a reboot are kept. Reads the whole directory once; errors are
/// ignored.
void remove_abandoned_temporaries(const std::filesystem::path& directory,
                                  std::string_view name = "") noexcept;

}  // namespace lockstep::inline v0
