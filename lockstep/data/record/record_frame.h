// Framing of TFRecord files: lengths and CRC-32C (Castagnoli) checksums.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::inline v0::data {

/// CRC-32C of `bytes`, computed with ISA-L. If `before` is the CRC of preceding bytes, the result
/// covers both.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// CRC-32C of `bytes`, rotated and offset as TFRecord stores it, so that a CRC of data that
/// contains CRCs is still meaningful.
std::uint32_t masked_crc32c(std::string_view bytes);

// The layout of a record in a TFRecord file: u64 length | u32 masked CRC of the length | data | u32
// masked CRC of the data, little-endian.

static_assert(std::endian::native == std::endian::little,
              "record files are read and written in the processor's byte order");

constexpr std::size_t kRecordHeaderBytes = 12;
constexpr std::size_t kRecordFooterBytes = 4;

/// The length field of a header of kRecordHeaderBytes bytes.
std::uint64_t record_length(std::string_view header);

/// Whether the CRC in a header of kRecordHeaderBytes bytes matches its length field; false for
/// fewer bytes.
bool header_intact(std::string_view header);

/// Checks a sequence of headers. Skips the checksum if a header equals the preceding one, since
/// adjacent records often have the same length.
class HeaderCheck {
 public:
  bool is_intact(std::string_view header);

 private:
  char known_[kRecordHeaderBytes] = {};  // an intact header, if is_known_
  bool is_known_ = false;
};

/// Whether `footer`, kRecordFooterBytes bytes, is the CRC of `data`.
bool data_intact(std::string_view data, std::string_view footer);

/// Appends one framed record to `out`.
void append_record(std::string& out, std::string_view data);

}  // namespace lockstep::inline v0::data
