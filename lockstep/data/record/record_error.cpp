#include "lockstep/data/record/record_error.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::inline v0::data {

std::string RecordLocation::text() const {
  return fmt::format("{}: record {} at byte {}", file, record, offset);
}

std::string_view fault_name(RecordFault fault) {
  static constexpr auto kFaults =
      enum_names<RecordFault>({{RecordFault::truncated_length, "truncated length"},
                               {RecordFault::length_crc, "length CRC"},
                               {RecordFault::truncated_data, "truncated data"},
                               {RecordFault::data_crc, "data CRC"}});
  return kFaults.name(fault);
}

RecordError::RecordError(RecordFault fault, RecordLocation location, std::string_view details)
    : Error(ErrorCategory::data, location.text(), "expected an intact record",
            fmt::format("{}: {}", fault_name(fault), details)),
      fault_(fault),
      location_(std::move(location)) {}

void throw_truncated_length(RecordLocation location, std::uint64_t left) {
  throw RecordError(
      RecordFault::truncated_length, std::move(location),
      fmt::format("the file ends after {} of the {} header bytes", left, kRecordHeaderBytes));
}

void throw_truncated_data(RecordLocation location, std::uint64_t announced, std::uint64_t left) {
  throw RecordError(RecordFault::truncated_data, std::move(location),
                    fmt::format("the header announces {} data bytes and {} CRC bytes, but only {} "
                                "bytes are left in the file",
                                announced, kRecordFooterBytes, left));
}

void throw_too_long(const RecordLocation& location, std::uint64_t length) {
  throw Error(ErrorCategory::data, location.text(),
              fmt::format("expected a record of at most {} bytes, the limit of a tf.train.Example",
                          kMaxRecordBytes),
              fmt::format("the header announces {}", length));
}

namespace {

/// What to do about a file that begins with these bytes, if they are not a record's.
std::string remedy_for(std::string_view head) {
  if (const FileKind kind = file_kind(head); kind.is_known())
    return fmt::format("; the file is {}{}", kind.name,
                       kind.content == FileKind::Content::text ? ", and a table is read as csv:FILE"
                       : kind.name.ends_with("image")
                           ? ", and images are read from a directory with a folder for each class"
                           : "");
  return "";
}

}  // namespace

void throw_length_crc(RecordLocation location, std::string_view bytes) {
  const bool is_first = location.offset == 0;
  throw RecordError(RecordFault::length_crc, std::move(location),
                    fmt::format("the length field does not match its checksum{}",
                                is_first ? remedy_for(bytes) : ""));
}

void throw_data_crc(RecordLocation location) {
  throw RecordError(RecordFault::data_crc, std::move(location),
                    "the data does not match its checksum");
}

std::string DamagedFile::text() const {
  return fmt::format("{}: {}; the last {} bytes are skipped", location.text(), kind,
                     bytes_left_out);
}

void throw_too_many_bad(std::int64_t limit, std::string_view one) {
  throw Error(ErrorCategory::data, "bad records",
              "expected at most " + counted(limit, "unreadable record"),
              fmt::format("there are more, such as: {}", one));
}

}  // namespace lockstep::inline v0::data
