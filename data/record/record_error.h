// What can be wrong with a record file, and where.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/error.h"

namespace lockstep::data {

/// A place in a record file, for messages.
struct RecordLocation {
  std::string file;         ///< its path
  std::int64_t record = 0;  ///< number within the file, from 0
  std::int64_t offset = 0;  ///< byte at which the record's header starts; in a compressed file, of the inflated stream

  /// "train-00000-of-00002.tfrecord: record 500 at byte 418000"
  std::string text() const;
};

/// What is wrong with a record: cut off, or a checksum that does not agree, in its length or in its data.
enum class RecordFault { truncated_length, length_crc, truncated_data, data_crc };

/// "truncated length", "length CRC", "truncated data", "data CRC".
std::string_view fault_name(RecordFault fault);

/// A damaged record, as an Error (data).
class RecordError : public Error {
 public:
  /// `details` goes on where the kind ends: "24 bytes announced, 10 left".
  RecordError(RecordFault fault, RecordLocation location, std::string_view details);

  RecordFault fault() const noexcept { return fault_; }                  ///< what is wrong with the record
  const RecordLocation& location() const noexcept { return location_; }  ///< where it stands

 private:
  RecordFault fault_;
  RecordLocation location_;
};

/// Throws the RecordError for a file that ends `left` bytes after the start of a header, or inside the record's data.
[[noreturn]] void throw_truncated_length(RecordLocation location, std::uint64_t left);
/// Throws RecordError for a record of `announced` bytes of which `left` are there.
[[noreturn]] void throw_truncated_data(RecordLocation location, std::uint64_t announced, std::uint64_t left);
/// Throws RecordError for a length whose checksum does not agree.
[[noreturn]] void throw_length_crc(RecordLocation location);
/// Throws RecordError for data whose checksum does not agree.
[[noreturn]] void throw_data_crc(RecordLocation location);

}  // namespace lockstep::data
