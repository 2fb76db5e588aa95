#include "data/record/record_error.h"

#include <fmt/format.h>

#include <utility>

#include "data/record/record_frame.h"

namespace lockstep::data {

std::string RecordLocation::text() const { return fmt::format("{}: record {} at byte {}", file, record, offset); }

std::string_view fault_name(RecordFault fault) {
  switch (fault) {
    case RecordFault::truncated_length:
      return "truncated length";
    case RecordFault::length_crc:
      return "length CRC";
    case RecordFault::truncated_data:
      return "truncated data";
    case RecordFault::data_crc:
      return "data CRC";
  }
  return "";
}

RecordError::RecordError(RecordFault fault, RecordLocation location, std::string_view details)
    : Error(ErrorCategory::data, location.text(), "needed an intact record",
            fmt::format("{}: {}", fault_name(fault), details)),
      fault_(fault),
      location_(std::move(location)) {}

void throw_truncated_length(RecordLocation location, std::uint64_t left) {
  throw RecordError(RecordFault::truncated_length, std::move(location),
                    fmt::format("the file ends after {} of the {} header bytes", left, kRecordHeaderBytes));
}

void throw_truncated_data(RecordLocation location, std::uint64_t announced, std::uint64_t left) {
  throw RecordError(RecordFault::truncated_data, std::move(location),
                    fmt::format("{} data bytes and {} of their CRC announced, {} left in the file", announced,
                                kRecordFooterBytes, left));
}

void throw_length_crc(RecordLocation location) {
  throw RecordError(RecordFault::length_crc, std::move(location), "the length field does not match its checksum");
}

void throw_data_crc(RecordLocation location) {
  throw RecordError(RecordFault::data_crc, std::move(location), "the data do not match their checksum");
}

}  // namespace lockstep::data
