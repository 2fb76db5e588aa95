// Memory-mapped record files. Without enable_mapped_files(), which only a program calls, nothing is
// mapped.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "lockstep/base/file/input_file.h"

namespace lockstep::inline v0::data {

/// Lets data sets that are opened afterwards be read from memory mappings: about twice as fast as
/// pread() for plain record files of up to 1 GiB together that are in the page cache. Installs a
/// SIGBUS handler for the whole process, because a file that shrinks, or whose disk fails, raises
/// that signal; the run then ends with the same Error as without mappings. Any other SIGBUS is
/// forwarded to the previous handler. Library code never calls it. Call it after MPI is initialized
/// (Session): Open MPI warns about handlers that it finds. Calls after the first have no effect.
/// Thread-safe.
void enable_mapped_files();

/// A page of a mapping that cannot be read raises the signal SIGBUS. While a guard exists, such a
/// page of its mapping reads as zeros instead, and is_intact() returns false. Any other SIGBUS is
/// forwarded to the previous handler. Move-only.
class MappingGuard {
 public:
  /// Guards nothing.
  MappingGuard() = default;
  /// Guards the `bytes` bytes mapped at `begin`, a multiple of the page size. The owner must not
  /// unmap them before the guard is destroyed, and only when no thread reads them. Guards nothing
  /// without enable_mapped_files(), if there are already kMaxGuards guards, or if other code has
  /// installed a SIGBUS handler since.
  MappingGuard(const void* begin, std::size_t bytes);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  ~MappingGuard();

  /// Whether it guards anything.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False after a page could not be read: data read since then may be zeros. Thread-safe.
  bool is_intact() const noexcept;

  static constexpr std::size_t kMaxGuards = 1024;  ///< at the same time, in the process

  struct Slot;

 private:
  Slot* slot_ = nullptr;
};

/// The first bytes of a file, mapped: reads need no copy and no system call. Touched pages in the
/// page cache count as memory of this process. A page that cannot be read, because the file shrank
/// or its disk failed, reads as zeros from then on: see is_intact(). Move-only; thread-safe for
/// reading.
class MappedFile {
 public:
  /// Returns nullopt if `count` is 0, if the file cannot be mapped, or if no guard is available.
  /// The descriptor is not needed afterwards.
  static std::optional<MappedFile> map(const InputFile& file, std::size_t count);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// The mapped bytes, valid as long as this object.
  std::string_view bytes() const { return {begin_, count_}; }
  /// Releases the pages to the system, which may then drop them from the page cache. They are
  /// loaded again when touched.
  void release() const noexcept;
  /// Whether everything read so far is the actual content of the file.
  bool is_intact() const noexcept { return guard_.is_intact(); }

 private:
  MappedFile(const char* begin, std::size_t count)
      : begin_(begin), count_(count), guard_(begin, count) {}

  const char* begin_;
  std::size_t count_;
  MappingGuard guard_;
};

}  // namespace lockstep::inline v0::data
