#include "lockstep/random/random.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::inline v0 {
namespace {

TEST(Philox, MatchesThePublishedVector) {
  // Known-answer test of Philox4x32-10 for key 0 and counter 0 (Random123's kat_vectors).
  const std::array<std::uint32_t, 4> expected = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(Philox(0).block(0, 0), expected);
}

TEST(RandomKey, SeparatesSeedPurposeAndIndex) {
  const auto key = random_key(1, "dropout", 7);
  EXPECT_EQ(key, random_key(1, "dropout", 7));
  EXPECT_NE(key, random_key(2, "dropout", 7));
  EXPECT_NE(key, random_key(1, "shuffle", 7));
  EXPECT_NE(key, random_key(1, "dropout", 8));
}

TEST(UnitFloat, StaysBelowOne) {
  EXPECT_EQ(to_unit_float(0), 0.0f);
  EXPECT_LT(to_unit_float(0xffffffff), 1.0f);
}

}  // namespace
}  // namespace lockstep::inline v0
