// A file that appears complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "device/error.h"

namespace lockstep::data {

/// Whether commit() waits until the bytes are on the disk. What can be made again, such as an index, need not.
enum class Durability { synced, cached };

/// Writes under a hidden temporary name in the same directory and renames at publish(). Until then, and after any
/// failure, whatever stood under `path` is untouched; an AtomicFile that dies unpublished takes its temporary file with
/// it.
class AtomicFile {
 public:
  /// Throws Error where the directory cannot be written. `category` is that of all errors of this file.
  explicit AtomicFile(std::filesystem::path path, Durability durability = Durability::synced,
                      ErrorCategory category = ErrorCategory::data);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  const std::filesystem::path& path() const { return path_; }  ///< where the file will be

  /// Throws Error, for instance for a full disk; the file is given up then.
  void write(std::string_view bytes);

  /// Writes from byte `offset` on, whatever was written before. Several threads may do so at once. Throws Error; the
  /// file is not given up then.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// The name until publish(). Who opens the file by it reads what is written so far, and has it open after publish()
  /// too.
  const std::filesystem::path& temporary() const { return temporary_; }

  /// Makes the bytes durable (unless only cached) and closes; nothing can be written afterwards. Throws Error (data),
  /// perhaps only here for a full disk.
  void finish();

  /// Gives the finished file its name. Throws Error (data).
  void publish();

  /// finish() and publish().
  void commit();

 private:
  [[noreturn]] void fail(int error);
  [[noreturn]] void throw_unwritable(int error) const;
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Durability durability_;
  ErrorCategory category_;
  int descriptor_ = -1;
};

/// One AtomicFile of `bytes`.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           Durability durability = Durability::synced);

}  // namespace lockstep::data
