// A record file that is used up to where it is damaged.
#pragma once

#include <cstdint>
#include <string>

#include "data/record/record_error.h"

namespace lockstep::data {

/// What is left out of a file, and why: behind a damaged length, or where the file ends within a record, nothing can be
/// found.
struct DamagedFile {
  RecordLocation location;  ///< of the first record that is left out: file, number, byte
  std::string kind;         ///< "length CRC", "truncated length", "truncated data", "gzip stream", "zlib stream"
  std::int64_t bytes_left_out = 0;  ///< from there to the end; in a packed file, of what could be inflated

  /// "a.tfrecord: record 7 at byte 5852: length CRC; the last 1204 bytes are left out"
  std::string text() const;
};

}  // namespace lockstep::data
