// Memory-mapped files that tolerate I/O errors: a file that shrinks, or whose disk fails, does not end the process.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "lockstep/base/input_file.h"

namespace lockstep::data {

/// A page of a mapping that cannot be read raises the signal SIGBUS. While a guard exists, such a page of its mapping
/// reads as zeros instead, and is_intact() returns false. Any other SIGBUS is forwarded to the previous handler.
/// Move-only.
class MappingGuard {
 public:
  /// Guards nothing.
  MappingGuard() = default;
  /// Guards the `bytes` bytes mapped at `begin`, a multiple of the page size. The owner must not unmap them before the
  /// guard is destroyed, and only when no thread reads them. Guards nothing if there are already kMaxGuards guards, or
  /// if another library has installed a SIGBUS handler after Lockstep.
  MappingGuard(const void* begin, std::size_t bytes);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  ~MappingGuard();

  /// Whether it guards anything.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False after a page could not be read: data read since then may be zeros. Thread-safe.
  bool is_intact() const noexcept;

  static constexpr std::size_t kMaxGuards = 1024;

  struct Slot;

 private:
  Slot* slot_ = nullptr;
};

/// The first bytes of a file, mapped: reads need no copy and no system call. Touched pages in the page cache count as
/// memory of this process. A page that cannot be read, because the file shrank or its disk failed, reads as zeros from
/// then on: see is_intact(). Move-only; thread-safe for reading.
class MappedFile {
 public:
  /// Returns nullopt if `count` is 0, if the file cannot be mapped, or if no guard is available. The descriptor is not
  /// needed afterwards.
  static std::optional<MappedFile> map(const InputFile& file, std::size_t count);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {begin_, count_}; }
  /// Releases the pages to the system, which may then drop them from the page cache. They are loaded again when
  /// touched.
  void release() const noexcept;
  /// Whether everything read so far is the actual content of the file.
  bool is_intact() const noexcept { return guard_.is_intact(); }

 private:
  MappedFile(const char* begin, std::size_t count) : begin_(begin), count_(count), guard_(begin, count) {}

  const char* begin_;
  std::size_t count_;
  MappingGuard guard_;
};

}  // namespace lockstep::data
