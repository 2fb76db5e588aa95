// What one thread has read of a record file and not used yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/record/input_file.h"
#include "data/record/record_frame.h"

namespace lockstep::data {

/// Tells files apart for as long as anybody holds it; an address alone could come back with another file.
using FileIdentity = std::shared_ptr<const char>;

/// Records that are read one after the other come from one buffer, so that small ones cost no system call each. It
/// reads ahead as much as has been asked for in this run of neighbours, up to kLargestAhead: whatever the order, no
/// more than twice the bytes that were asked for are read. Records in a shuffled order are read one by one. A buffer as
/// large as kLargestAhead, or as the longest read. One per thread, for any number of files.
class ReadWindow {
 public:
  static constexpr std::size_t kLargestAhead = std::size_t{1} << 17;

  /// `count` bytes from `offset`, or those up to the end of the file; valid until the next call. `file` must hold the
  /// same bytes whenever it comes with this identity. Throws Error.
  std::string_view read(const InputFile& file, const FileIdentity& identity, std::uint64_t offset, std::size_t count);

  /// Of the headers that this thread reads, in a window or elsewhere.
  HeaderCheck& headers() { return headers_; }

 private:
  void refill(const InputFile& file, std::uint64_t offset, std::size_t count);

  HeaderCheck headers_;
  std::string buffer_;  // its first held_ bytes are those of the file from begin_
  FileIdentity identity_;
  std::uint64_t begin_ = 0;
  std::size_t held_ = 0;
  std::uint64_t run_ = 0;   // where the neighbours began
  std::uint64_t next_ = 0;  // where the last read ended
};

}  // namespace lockstep::data
