// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::data {

/// CRC-32C of `bytes`, by ISA-L; of all bytes together where `before` is that of those before them.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);

/// The same, rotated and shifted as TFRecord stores it, so that a CRC of data which itself holds CRCs stays meaningful.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace lockstep::data
