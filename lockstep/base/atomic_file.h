// A file that appears complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

/// Whether commit() waits until the bytes are on the disk. What can be made again, such as an index, need not.
enum class Durability { synced, cached };

/// What an AtomicFile does where something other than a regular file has its name. Such a thing is never replaced.
enum class Existing {
  /// A symbolic link is followed, and the file it names is replaced. A character device or a FIFO is written to. For
  /// outputs that the user names.
  any_kind,
  /// Error. For files that are kept beside data of unknown origin, where a link could lead anywhere.
  regular_only,
};

/// Writes under a hidden temporary name in the same directory and renames at publish(). Until then, and after any
/// failure, whatever stood under `path` is untouched; an AtomicFile that dies unpublished takes its temporary file with
/// it. Temporary files of processes that were killed are for remove_abandoned_temporaries(). A device or a FIFO
/// (Existing::any_kind) has no temporary file: it gets the bytes as they are written.
class AtomicFile {
 public:
  /// Throws Error where the directory cannot be written, or where `path` is a directory or anything else that cannot be
  /// an output. Waits for a reader where it is a FIFO. `category` is that of all errors of this file.
  explicit AtomicFile(std::filesystem::path path, Durability durability = Durability::synced,
                      ErrorCategory category = ErrorCategory::data, Existing existing = Existing::any_kind);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::filesystem::path& path() const { return path_; }  ///< where the file will be

  /// Whether the file appears at publish(); false where the bytes go straight to a device or a FIFO.
  bool is_atomic() const { return is_atomic_; }

  /// Throws Error, for instance for a full disk; the file is given up then.
  void write(std::string_view bytes);

  /// Writes from byte `offset` on, whatever was written before. Several threads may do so at once. Throws Error; the
  /// file is not given up then.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// The name until publish(); empty where !is_atomic(). Who opens the file by it reads what is written so far, and has
  /// it open after publish() too.
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Makes the bytes durable (unless only cached) and closes; nothing can be written afterwards. Throws Error (data),
  /// perhaps only here for a full disk.
  void finish();

  /// Gives the finished file its name. Throws Error (data).
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
  std::filesystem::path target_;  // path_ without the links that lead from it to a file
  std::filesystem::path temporary_;
  Durability durability_;
  ErrorCategory category_;
  bool is_atomic_ = true;
  int descriptor_ = -1;
};

/// One AtomicFile of `bytes`.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           Durability durability = Durability::synced);

/// Removes the temporary files that AtomicFiles of processes of this host and PID namespace left in `directory` when
/// they were killed: all, or those of the file `name`. Those of living processes, of other hosts and from before a
/// reboot stay. Reads the whole directory once; errors are ignored.
void remove_abandoned_temporaries(const std::filesystem::path& directory, std::string_view name = "") noexcept;

}  // namespace lockstep
