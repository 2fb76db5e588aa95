#include "lockstep/data/sample/sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_kind.h"
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

void throw_too_long(const RecordLocation& location, std::uint64_t length) {
  throw Error(ErrorCategory::data, location.text(),
              fmt::format("expected a record of at most {} bytes, the limit of a tf.train.Example",
                          kMaxRecordBytes),
              fmt::format("the header announces {}", length));
}

namespace {

/// What a file that begins with these bytes is, if they are not a record's.
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

std::string text_of_labels(std::int64_t lowest, std::int64_t highest) {
  if (lowest <= 0 || lowest > highest) return "";
  return fmt::format(", labels from {} to {} ({} classes, none of class 0)", lowest, highest,
                     highest + 1);
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

void throw_wrong_type(std::string_view name, ElementType requested, ElementType type) {
  throw Error(ErrorCategory::input, name,
              fmt::format("expected a tensor of {}", to_string(requested)),
              fmt::format("it is {}", to_string(type)));
}

void throw_no_tensor(std::string_view what, std::string_view name,
                     const std::vector<std::string_view>& known) {
  if (known.empty())
    throw Error(ErrorCategory::input, what, fmt::format("expected one called \"{}\"", name),
                "there are none");
  refuse_name(what, name, known);
}

void TensorView::set_length(std::size_t length) {
  if (row == nullptr)
    throw Error(ErrorCategory::input, name, "expected a tensor whose first extent is unknown (-1)",
                fmt::format("all samples have {}", counted(elements, "element")));
  if (length > static_cast<std::size_t>(kMaxElements) / unit)
    throw Error(ErrorCategory::data, name, "expected at most 2^28 elements in a sample",
                fmt::format("got {} times {}", length, unit));
  if (type == ElementType::bytes)
    row->strings.resize(length * unit);
  else
    row->bytes.resize(length * unit * element_bytes(type));
  attach(*row);
}

void TensorView::attach(RaggedRow& to) {
  row = &to;
  const bool has_strings = type == ElementType::bytes;
  data = has_strings ? reinterpret_cast<std::byte*>(to.strings.data()) : to.bytes.data();
  elements = has_strings ? to.strings.size() : to.bytes.size() / element_bytes(type);
}

const TensorView& Sample::input(std::string_view name) const {
  return find_tensor(std::span(inputs), "inputs of the sample", name);
}

TensorView& Sample::input(std::string_view name) {
  return find_tensor(std::span(inputs), "inputs of the sample", name);
}

const TensorView& Sample::target(std::string_view name) const {
  return find_tensor(std::span(targets), "targets of the sample", name);
}

TensorView& Sample::target(std::string_view name) {
  return find_tensor(std::span(targets), "targets of the sample", name);
}

void Sample::throw_no_label() {
  throw Error(ErrorCategory::input, "label of the sample",
              "expected one class number as the first target", "the data set has none");
}

std::span<std::uint8_t> StoredImage::allocate(std::size_t count) {
  memory.resize(count);
  const std::span pixels(reinterpret_cast<std::uint8_t*>(memory.data()), count);
  bytes = pixels;
  return pixels;
}

void StoredImage::read(const RecordSource& from, std::int64_t id, Sample& sample) {
  bytes = {};
  is_encoded = false;
  source = nullptr;
  is_mapped = false;
  struct Request {  // ends with the call, also by an exception
    Sample& sample;
    ~Request() { sample.image = nullptr; }
  } const request{sample};
  sample.image = this;
  from.read(id, sample);
}

void RecordSource::fail_image(std::int64_t /*record_id*/, const Error& error) const {
  throw Error(error);
}

void Sample::set_image(std::span<const std::uint8_t> pixels_of_image,
                       const ChannelNormalization& normalization) {
  if (image == nullptr) return set_image_view(pixels_of_image, normalization);
  std::ranges::copy(pixels_of_image, image->allocate(pixels_of_image.size()).begin());
}

void Sample::set_image_view(std::span<const std::uint8_t> pixels_of_image,
                            const ChannelNormalization& normalization) {
  if (image != nullptr) {
    image->bytes = pixels_of_image;
    return;
  }
  const std::span<std::uint8_t> to = pixels();
  if (to.empty()) return pixels_to_features(pixels_of_image, normalization, features());
  LOCKSTEP_CHECK_OP(pixels_of_image.size(), ==, to.size());
  std::memcpy(to.data(), pixels_of_image.data(), pixels_of_image.size());
}

}  // namespace lockstep::data
