// Locations in record files, and their damage as errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

/// A file of consecutive records.
struct StoredFile {
  std::string name;          ///< path of the file
  std::int64_t records = 0;  ///< number of records in the file
  std::int64_t bytes = 0;    ///< size on disk
};

/// A location in a record file, for messages.
struct RecordLocation {
  std::string file;         ///< path of the file
  std::int64_t record = 0;  ///< index of the record in the file, from 0
  /// Byte offset of the record's header; in a compressed file, offset in the decompressed stream.
  std::int64_t offset = 0;

  /// "train-00000-of-00002.tfrecord: record 500 at byte 418000"
  std::string text() const;
};

/// The largest record: the largest message of protobuf. Without a limit, a sparse file could have a
/// record that requires any amount of memory.
inline constexpr std::uint64_t kMaxRecordBytes = (std::uint64_t{1} << 31) - 1;

/// Damage of a record: truncation, or a checksum mismatch, in its length or in its data.
enum class RecordFault { truncated_length, length_crc, truncated_data, data_crc };

/// "truncated length", "length CRC", "truncated data", "data CRC".
std::string_view fault_name(RecordFault fault);

/// A damaged record, as an Error (data).
class RecordError : public Error {
 public:
  /// `details` follows the kind of damage in the message: "24 bytes announced, 10 left".
  RecordError(RecordFault fault, RecordLocation location, std::string_view details);
  /// A file without a record, because it is `another` file: "a gzip file: decompress it".
  RecordError(RecordLocation location, std::string_view another);

  RecordFault fault() const noexcept { return fault_; }                  ///< kind of damage
  const RecordLocation& location() const noexcept { return location_; }  ///< location of the record

 private:
  RecordFault fault_;
  RecordLocation location_;
};

/// Throws the RecordError for a file that ends `left` bytes after the start of a header.
[[noreturn]] void throw_truncated_length(RecordLocation location, std::uint64_t left);
/// Throws the RecordError for a record of `announced` bytes of which only `left` are in the file.
[[noreturn]] void throw_truncated_data(RecordLocation location, std::uint64_t announced,
                                       std::uint64_t left);
/// Throws Error (data) for a record of `length` bytes, more than kMaxRecordBytes.
[[noreturn]] void throw_too_long(const RecordLocation& location, std::uint64_t length);
/// Throws the RecordError for a length field that does not match its checksum. `bytes` are the
/// first of the record; the first kFileKindBytes of a file may show that it has another format,
/// which the message then names instead.
[[noreturn]] void throw_length_crc(RecordLocation location, std::string_view bytes);
/// Throws the RecordError for data that does not match its checksum.
[[noreturn]] void throw_data_crc(RecordLocation location);

/// A record file that is used only up to its first damage: after a damaged length, or if the file
/// ends within a record, further records cannot be located.
struct DamagedFile {
  RecordLocation location;  ///< first skipped record: file, number, byte
  /// "length CRC", "truncated length", "truncated data", "gzip stream", "zlib stream".
  std::string kind;
  /// Bytes from there to the end; in a compressed file, to the end of the decompressible part.
  std::int64_t bytes_left_out = 0;

  /// "a.tfrecord: record 7 at byte 5852: length CRC; the last 1204 bytes are skipped"
  std::string text() const;
};

/// A record that could not be read.
struct BadRecord {
  std::int64_t record_id = 0;  ///< id of the record
  std::string problem;         ///< with file, record, byte offset and kind
};

/// In a handler of `error`, about a record: throws it with the option that tolerates such records,
/// or as it is if it names another option.
[[noreturn]] void throw_tolerable(const Error& error);

/// Throws the Error (data) for more than `limit` bad records, with `one` as an example.
[[noreturn]] void throw_too_many_bad(std::int64_t limit, std::string_view one);

}  // namespace lockstep::inline v0::data
