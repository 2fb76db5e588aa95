// What a fuzzer of ours is: one function over bytes that nobody vouches for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// Each fuzzer defines it: feeds `bytes` to what is tested. May throw Error, which is how damage is
/// to be reported; anything else that leaves it, and any finding of a sanitizer, is a bug.
void read_untrusted(Bytes bytes);

/// Calls `function`; an Error of `category` ends here. For readers of files that are no data.
template <typename Function>
void tolerate(ErrorCategory category, Function function) {
  try {
    function();
  } catch (const Error& error) {
    if (error.category() != category) throw;
  }
}

/// What reading `bytes` may cost at most. A library may allocate or compute a thousand times what a
/// file has, compressed texts of a PNG for example, before a limit of ours on the result applies.
struct Cost {
  std::uint64_t resident_bytes = 0;  ///< growth of the resident set, at its peak
  double seconds = 0;                ///< of processor time, so that other processes do not count
};
Cost allowed_cost(std::size_t bytes);

/// read_untrusted(bytes); an Error (data) ends here. Any other kind of error is a bug too: the
/// bytes are to blame and not the user's command line. Throws std::runtime_error if it costs more
/// than allowed_cost().
void try_untrusted(Bytes bytes);

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A file in memory, for what reads files only. Gone with this object.
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

/// A directory, for what reads a file by its name in one. Gone with this object.
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

}  // namespace lockstep::fuzz
