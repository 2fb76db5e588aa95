// The interface of a fuzzer: one function over untrusted bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// Defined by each fuzzer: passes `bytes` to the code under test. May throw Error, which reports
/// damaged input; any other exception, and any sanitizer report, is a bug.
void read_untrusted(Bytes bytes);

/// Calls `function` and ignores an Error of `category`, for readers whose errors have another
/// category than data.
template <typename Function>
void tolerate(ErrorCategory category, Function function) {
  try {
    function();
  } catch (const Error& error) {
    if (error.category() != category) throw;
  }
}

/// Memory and time of reading an input.
struct Cost {
  std::uint64_t resident_bytes = 0;  ///< growth of the peak resident set
  double seconds = 0;                ///< processor time
};
/// Maximum cost of reading `bytes`. A library may allocate or compute a thousand times the size of
/// a file, for example for compressed texts of a PNG, before our limit on the result applies.
Cost allowed_cost(std::size_t bytes);

/// Calls read_untrusted(bytes) and ignores an Error (data). An Error of another category is a bug,
/// because it would not blame the file. Throws std::runtime_error if the cost exceeds
/// allowed_cost().
void try_untrusted(Bytes bytes);

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A file in memory, for readers of files. Removed by the destructor.
class MemoryFile {
 public:
  explicit MemoryFile(Bytes content);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const;

 private:
  int descriptor_;
};

/// A directory, for readers of named files in one. Removed by the destructor.
class Directory {
 public:
  Directory();
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Replaces the file `name`.
  void write(const std::string& name, Bytes content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::inline v0::fuzz
