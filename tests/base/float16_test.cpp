#include "lockstep/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::inline v0 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The value of a binary16 by its definition.
double value_of(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * kInfinity : std::nan("");
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

float widened(std::uint16_t bits) {
  const Float16 from = {bits};
  float to = 0;
  widen(std::span(&from, 1), std::span(&to, 1));
  return to;
}

std::uint16_t narrowed(float value) {
  Float16 to;
  narrow(std::span(&value, 1), std::span(&to, 1));
  return to.bits;
}

TEST(Float16, WidensEachValueExactly) {
  std::vector<Float16> from;
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits)
    from.push_back({static_cast<std::uint16_t>(bits)});
  std::vector<float> to(from.size());
  widen(from, to);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double value = value_of(from[i].bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to[i])) << std::hex << i;
    } else {
      EXPECT_EQ(to[i], value) << std::hex << i;
      EXPECT_EQ(std::signbit(to[i]), (i & 0x8000) != 0) << std::hex << i;
    }
  }
}

TEST(Float16, NarrowsToTheNearestValueAndTiesToEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((value_of(bits) + value_of(next)) / 2);
    EXPECT_EQ(narrowed(widened(bits)), bits) << std::hex << bits;
    EXPECT_EQ(narrowed(middle), bits % 2 == 0 ? bits : next) << std::hex << bits;
    EXPECT_EQ(narrowed(std::nextafter(middle, 0.0F)), bits) << std::hex << bits;
    EXPECT_EQ(narrowed(std::nextafter(middle, kInfinity)), next) << std::hex << bits;
    EXPECT_EQ(narrowed(-middle), narrowed(middle) | 0x8000) << std::hex << bits;
  }
}

TEST(Float16, NarrowsWhatIsTooLargeToInfinityAndKeepsNan) {
  EXPECT_EQ(narrowed(65504), 0x7bff);
  EXPECT_EQ(narrowed(std::nextafter(65520.0F, 0.0F)), 0x7bff);
  for (const float value : {65520.0F, 1e6F, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(narrowed(value), 0x7c00) << value;
    EXPECT_EQ(narrowed(-value), 0xfc00) << value;
  }
  EXPECT_EQ(narrowed(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(narrowed(std::ldexp(1.0F, -25)), 0);
  EXPECT_EQ(narrowed(-0.0F), 0x8000);
  EXPECT_TRUE(std::isnan(widened(narrowed(std::numeric_limits<float>::quiet_NaN()))));
  // One whose highest bits are zero must not become infinity.
  EXPECT_TRUE(std::isnan(widened(narrowed(std::bit_cast<float>(0x7f800001U)))));
}

TEST(Float16, ConvertsEachElementOfAnArray) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 33U}) {
    std::vector<float> values;
    for (std::size_t i = 0; i < size; ++i) values.push_back(static_cast<float>(i) - 3.5F);
    std::vector<Float16> halves(size);
    std::vector<float> back(size);
    narrow(values, halves);
    widen(halves, back);
    EXPECT_EQ(back, values);
    std::vector<BFloat16> bfloats(size);
    narrow(values, bfloats);
    widen(bfloats, back);
    EXPECT_EQ(back, values);
  }
}

}  // namespace
}  // namespace lockstep::inline v0
