#include "lockstep/data/sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/pixels.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/record_frame.h"

namespace lockstep::data {

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

void throw_length_crc(RecordLocation location) {
  throw RecordError(RecordFault::length_crc, std::move(location),
                    "the length field does not match its checksum");
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

std::int64_t SampleSpec::feature_count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

void check_shape(std::span<const std::int64_t> shape, const std::string& where) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;
  std::int64_t count = 1;
  bool is_sensible = !shape.empty();
  for (const std::int64_t extent : shape) {
    is_sensible = is_sensible && extent > 0 && extent <= kMaxElements / count;
    if (!is_sensible) break;
    count *= extent;
  }
  if (!is_sensible)
    throw Error(ErrorCategory::input, where,
                "expected a shape with positive extents and at most 2^28 elements",
                fmt::format("got [{}]", fmt::join(shape, ", ")));
}

void check_spec(const SampleSpec& spec, const std::string& where) {
  check_shape(spec.shape, where);
  if (spec.classes < 0 || spec.targets < 0 || (spec.classes > 0) == (spec.targets > 0))
    throw Error(ErrorCategory::input, where, "expected a number of classes or a number of targets",
                fmt::format("got {} classes and {} targets", spec.classes, spec.targets));
}

std::optional<std::size_t> different_feature(const std::vector<std::string>& names,
                                             const std::vector<std::string>& others) {
  const auto is_number = [](const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos;
  };
  for (std::size_t i = 0; i < std::min(names.size(), others.size()); ++i)
    if (names[i] != others[i] && !is_number(names[i]) && !is_number(others[i])) return i;
  return std::nullopt;
}

void Sample::set_image(std::span<const std::uint8_t> image,
                       const ChannelNormalization& normalization) {
  if (images != nullptr) return images->take_stored(image, *this);
  if (pixels.empty()) return pixels_to_features(image, normalization, features);
  LOCKSTEP_CHECK_OP(image.size(), ==, pixels.size());
  std::memcpy(pixels.data(), image.data(), image.size());
}

}  // namespace lockstep::data
