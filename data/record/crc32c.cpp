#include "data/record/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstddef>

namespace lockstep::data {
namespace {

constexpr std::size_t kLongestCall = std::size_t{1} << 30;  // ISA-L counts in int
constexpr std::uint32_t kMaskDelta = 0xa282ead8u;

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  // ISA-L neither inverts the state before nor after; the CRC does both. Its pointer is not const, but it only reads.
  std::uint32_t state = ~before;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kLongestCall);
    auto* begin = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    state = crc32_iscsi(begin, static_cast<int>(count), state);
    bytes.remove_prefix(count);
  }
  return ~state;
}

std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + kMaskDelta; }

}  // namespace lockstep::data
