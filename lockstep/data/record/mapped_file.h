// Keeps a mapped file that shrinks, or whose disk fails, from ending the process.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "lockstep/base/input_file.h"

namespace lockstep::data {

/// A page of a mapping that cannot be read is reported as the signal SIGBUS. While a guard lives, such a page of its
/// mapping reads as zeros instead, and is_intact() says so. Everybody else's SIGBUS goes to whoever handled it before.
/// Move-only.
class MappingGuard {
 public:
  /// Guards nothing.
  MappingGuard() = default;
  /// Guards the `bytes` bytes mapped at `begin`, a multiple of the page size; unmapping them before the guard ends is
  /// the owner's part, with nobody reading any more. Guards nothing where kMostGuards live already, or where somebody
  /// took SIGBUS after us.
  MappingGuard(const void* begin, std::size_t bytes);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  ~MappingGuard();

  /// Whether it guards anything.
  explicit operator bool() const noexcept { return slot_ != nullptr; }
  /// False from the moment at which a page could not be read: what was read since may be zeros. Any thread.
  bool is_intact() const noexcept;

  static constexpr std::size_t kMostGuards = 1024;

  struct Slot;

 private:
  Slot* slot_ = nullptr;
};

// A file as memory.

/// The first bytes of a file, mapped: no copy, and no system call for a read. What the system's cache holds of them
/// counts as memory of this process once it was touched. A page that cannot be read, because the file shrank or its
/// disk failed, reads as zeros from then on: see is_intact(). Move-only; any thread may read.
class MappedFile {
 public:
  /// Nothing where `count` is 0, where the file cannot be mapped, or where nobody could guard it. The descriptor is not
  /// needed afterwards.
  static std::optional<MappedFile> map(const InputFile& file, std::size_t count);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {begin_, count_}; }
  /// Gives its pages back to the system, which may drop them from its cache then; they come again when they are
  /// touched.
  void release() const noexcept;
  /// Whether all that was read so far is what the file holds.
  bool is_intact() const noexcept { return guard_.is_intact(); }

 private:
  MappedFile(const char* begin, std::size_t count) : begin_(begin), count_(count), guard_(begin, count) {}

  const char* begin_;
  std::size_t count_;
  MappingGuard guard_;
};

}  // namespace lockstep::data
