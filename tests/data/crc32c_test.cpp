#include "lockstep/data/record/record_frame.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::data {
namespace {

TEST(Crc32c, GivesThePublishedCheckValue) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5u);
}

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(crc32c(""), 0u); }

/// Bit by bit, from the polynomial: slow, and independent of any library.
std::uint32_t by_definition(std::string_view bytes) {
  std::uint32_t state = ~0u;
  for (const char byte : bytes) {
    state ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? 0x82f63b78u : 0u);
  }
  return ~state;
}

TEST(Crc32c, AgreesWithTheDefinitionAtEveryLength) {
  std::string bytes;
  for (int length = 0; length < 1100; ++length) {
    ASSERT_EQ(crc32c(bytes), by_definition(bytes)) << length << " bytes";
    bytes.push_back(static_cast<char>(length * 131 + 7));
  }
}

}  // namespace
}  // namespace lockstep::data
