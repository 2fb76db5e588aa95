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

RecordError::RecordError(RecordLocation location, std::string_view another)
    : Error(ErrorCategory::data, location.file, "expected a TFRecord file",
            fmt::format("got {}", another)),
      fault_(RecordFault::length_crc),
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

void throw_length_crc(RecordLocation location, std::string_view bytes) {
  const FileKind kind = location.offset == 0 ? file_kind(bytes) : FileKind();
  if (!kind.is_known())
    throw RecordError(RecordFault::length_crc, std::move(location),
                      "the length field does not match its checksum");
  const std::string_view remedy =
      kind.content == FileKind::Content::text ? "; a table is read as csv:FILE"
      : kind.name.ends_with("image")
          ? "; images are read from a directory with a folder for each class"
          : "";
  throw RecordError(std::move(location), fmt::format("{}{}", kind.name, remedy));
}

void throw_data_crc(RecordLocation location) {
  throw RecordError(RecordFault::data_crc, std::move(location),
                    "the data does not match its checksum");
}

std::string DamagedFile::text() const {
  return fmt::format("{}: {}; the last {} bytes are skipped", location.text(), kind,
                     bytes_left_out);
}

void throw_tolerable(const Error& error) {
  const ErrorMessage& message = error.message();
  if (message.expected.find("--") != std::string::npos) throw;
  throw Error(error.category(), message.where, message.expected,
              fmt::format("{}; --bad-records skip:N (Dataset::skip_bad_records) tolerates up to N "
                          "such records",
                          message.actual));
}

void throw_too_many_bad(std::int64_t limit, std::string_view one) {
  throw Error(ErrorCategory::data, "bad records",
              "expected at most " + counted(limit, "unreadable record"),
              fmt::format("there are more, such as: {}", one));
}

}  // namespace lockstep::inline v0::data
