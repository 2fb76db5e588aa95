#include <zlib.h>

#include <vector>

#include "lockstep/data/image/decode_image.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

void decode(Bytes bytes) {
  using namespace lockstep::data;
  Image memory;
  decode_png(bytes, 3, memory, 1 << 14);
  decode_png(bytes, 1, memory, 1 << 14);
}

/// `bytes` with valid checksums of chunks.
std::vector<std::uint8_t> with_checksums(Bytes bytes) {
  constexpr std::size_t kSignature = 8;
  constexpr std::size_t kFrame = 12;  // length, type, checksum
  std::vector<std::uint8_t> fixed(bytes.begin(), bytes.end());
  const auto read = [&](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8U | fixed[at + i];
    return value;
  };
  for (std::size_t at = kSignature; at + kFrame <= fixed.size();) {
    const std::size_t length = read(at);
    if (length > fixed.size() - at - kFrame) break;
    const auto checksum = ::crc32(0, fixed.data() + at + 4, static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i)
      fixed[at + 8 + length + i] = static_cast<std::uint8_t>(checksum >> (24 - 8 * i));
    at += length + kFrame;
  }
  return fixed;
}

}  // namespace

void read_untrusted(Bytes bytes) {
  tolerate(ErrorCategory::data, [&] { decode(bytes); });
  // Valid checksums let the code after their check run.
  decode(with_checksums(bytes));
}

}  // namespace lockstep::inline v0::fuzz
