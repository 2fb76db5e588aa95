// A file as memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "data/record/input_file.h"
#include "data/record/mapping_guard.h"

namespace lockstep::data {

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
