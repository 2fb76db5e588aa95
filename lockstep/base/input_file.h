// A file opened for reading, by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep {

/// What tells whether a file is still the one seen before.
struct FileStamp {
  std::int64_t size = 0;            ///< bytes
  std::int64_t modified_nanos = 0;  ///< since 1970
  bool operator==(const FileStamp&) const = default;
};

/// Size and time of the last change. Throws Error (data) where there is no such file.
FileStamp file_stamp(const std::filesystem::path& path);

/// Read-only, move-only. Reads go through pread: a failing disk or a file that shrinks under a run is an Error with the
/// file's name. Several threads may read at once.
class InputFile {
 public:
  /// Throws Error where `path` cannot be opened or is no regular file; never waits, not even for the writer of a FIFO.
  /// `category` is that of all errors of this file.
  explicit InputFile(std::filesystem::path path, ErrorCategory category = ErrorCategory::data);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }  ///< as it was opened
  int descriptor() const { return descriptor_; }               ///< for reads at offsets; this object closes it
  /// Of the file as it is now. Throws Error.
  FileStamp stamp() const;

  /// Gives the descriptor back; nothing can be read afterwards.
  void close() noexcept;

  /// Up to `count` bytes from byte `offset` into `into`; fewer only at the end of the file. Returns how many. Throws
  /// Error.
  std::size_t read_at(std::uint64_t offset, char* into, std::size_t count) const;

  /// Has the system begin to read `count` bytes from byte `offset` into its cache. A hint, which may be lost.
  void will_need(std::uint64_t offset, std::uint64_t count) const;

 private:
  std::filesystem::path path_;
  ErrorCategory category_;
  int descriptor_ = -1;
};

}  // namespace lockstep
