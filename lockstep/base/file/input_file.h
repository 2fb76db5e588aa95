// A file opened for positional reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0 {

/// Identifies the version of a file, to detect whether it has changed.
struct FileStamp {
  std::int64_t size = 0;            ///< bytes
  std::int64_t modified_nanos = 0;  ///< since 1970
  bool operator==(const FileStamp&) const = default;
};

/// Size and modification time. Throws Error (data) if there is no such file.
FileStamp file_stamp(const std::filesystem::path& path);

/// Identifies the contents of a file more precisely than its stamp, which a copy can inherit from
/// another file (cp -p).
struct FileVersion {
  FileStamp stamp;              ///< size and modification time
  std::uint64_t inode = 0;      ///< its number in the file system
  std::uint64_t ends_hash = 0;  ///< XXH3 of its first and of its last 4 KiB
  bool operator==(const FileVersion&) const = default;
};

/// The version of a file as it is now; reads its first and its last 4 KiB. Throws Error (data).
FileVersion file_version(const std::filesystem::path& path);

/// Read-only, move-only. Reads use pread: a failing disk causes an Error with the file's name.
/// Several threads may read concurrently.
class InputFile {
 public:
  /// Throws Error if `path` cannot be opened or is not a regular file. Never blocks, not even on a
  /// FIFO. `category` applies to all errors of this file.
  explicit InputFile(std::filesystem::path path, ErrorCategory category = ErrorCategory::data);
  /// A regular file that is open already, such as an unnamed temporary one; `path` is its name in
  /// messages.
  InputFile(FileDescriptor descriptor, std::filesystem::path path,
            ErrorCategory category = ErrorCategory::data)
      : path_(std::move(path)), category_(category), descriptor_(std::move(descriptor)) {}

  const std::filesystem::path& path() const { return path_; }  ///< as it was opened
  /// For positional reads; owned by this object.
  int descriptor() const { return descriptor_.get(); }
  /// Stamp of the file as it is now. Throws Error.
  FileStamp stamp() const;
  /// Version of the file as it is now; reads its first and its last 4 KiB. Throws Error.
  FileVersion version() const;

  /// Reads up to `count` bytes at byte `offset` into `into`; fewer only at the end of the file.
  /// Returns the number of bytes read. Throws Error.
  std::size_t read_at(std::uint64_t offset, char* into, std::size_t count) const;

  /// Hints to the system to prefetch `count` bytes at byte `offset` into its cache.
  void will_need(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  ErrorCategory category_;
  FileDescriptor descriptor_;
};

}  // namespace lockstep::inline v0
