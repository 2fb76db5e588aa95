#include "lockstep/model/cpu/float_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep::inline v0::model::cpu {
namespace {

using Bfloat16Values = std::vector<Eigen::bfloat16>;

Eigen::bfloat16 bfloat16_of_bits(std::size_t bits) {
  return Eigen::numext::bit_cast<Eigen::bfloat16>(static_cast<std::uint16_t>(bits));
}

std::vector<std::uint16_t> bits_of(const Bfloat16Values& values) {
  std::vector<std::uint16_t> bits;
  for (const Eigen::bfloat16& value : values)
    bits.push_back(Eigen::numext::bit_cast<std::uint16_t>(value));
  return bits;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

Bfloat16Values all_bfloat16() {
  Bfloat16Values values;
  for (std::size_t bits = 0; bits < 65536; ++bits) values.push_back(bfloat16_of_bits(bits));
  return values;
}

Bfloat16Values narrowed(const std::vector<float>& values) {
  Bfloat16Values result(values.size());
  narrow(values.data(), std::ssize(values), result.data());
  return result;
}

// Elements narrowed by Eigen, one by one.
Bfloat16Values narrowed_by_eigen(const std::vector<float>& values) {
  Bfloat16Values result;
  for (const float value : values) result.push_back(static_cast<Eigen::bfloat16>(value));
  return result;
}

std::vector<float> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(FloatRows, WidenEveryBfloat16) {
  const Bfloat16Values values = all_bfloat16();
  std::vector<float> wide(values.size());
  widen(values.data(), std::ssize(values), wide.data());
  std::vector<std::uint32_t> expected;
  for (std::size_t bits = 0; bits < values.size(); ++bits)
    expected.push_back(static_cast<std::uint32_t>(bits) << 16);
  EXPECT_EQ(bits_of(wide), expected);
}

// Each bfloat16 with fractions below, at and above the middle between it and the next: numbers,
// denormals, those that become infinite, infinities, and NaN of both signs.
TEST(FloatRows, NarrowLikeEigen) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    for (const std::uint32_t rest : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      values.push_back(std::bit_cast<float>(bits << 16 | rest));
  EXPECT_EQ(bits_of(narrowed(values)), bits_of(narrowed_by_eigen(values)));
}

TEST(FloatRows, NarrowRandomBitsLikeEigen) {
  std::mt19937 random(7);
  std::vector<float> values(100'000);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  EXPECT_EQ(bits_of(narrowed(values)), bits_of(narrowed_by_eigen(values)));
}

TEST(FloatRows, NarrowToKnownBits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {1,
                                     1 + 1.0f / 256,
                                     1 + 3.0f / 256,
                                     std::numeric_limits<float>::max(),
                                     -kInfinity,
                                     kNan,
                                     -kNan,
                                     std::numeric_limits<float>::denorm_min() * 0x10000,
                                     -0.0f};
  EXPECT_EQ(bits_of(narrowed(values)),
            (std::vector<std::uint16_t>{0x3f80, 0x3f80, 0x3f82, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 1,
                                        0x8000}));
}

// Parts of vector registers, at places that are not aligned.
TEST(FloatRows, ConvertAnyNumberOfElements) {
  const std::vector<float> values = random_numbers(100, 1);
  const Bfloat16Values expected = narrowed_by_eigen(values);
  for (std::size_t first = 0; first < 3; ++first)
    for (std::size_t count = 0; count <= 90; ++count) {
      Bfloat16Values narrow_values(values.size(), Eigen::bfloat16(9));
      narrow(values.data() + first, static_cast<std::int64_t>(count), narrow_values.data() + first);
      std::vector<float> wide_values(values.size(), 9);
      widen(expected.data() + first, static_cast<std::int64_t>(count), wide_values.data() + first);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool inside = i >= first && i < first + count;
        const float value = inside ? static_cast<float>(expected[i]) : 9;
        ASSERT_EQ(static_cast<float>(narrow_values[i]), value) << first << ' ' << count;
        ASSERT_EQ(wide_values[i], value) << first << ' ' << count;
      }
    }
}

// More than one block, and a part of one.
constexpr std::size_t kElements = 2 * kBlockElements + 37;

TEST(FloatRows, AreAddedAndRoundedOnce) {
  const Bfloat16Values a = narrowed(random_numbers(kElements, 2));
  const Bfloat16Values b = narrowed(random_numbers(kElements, 3));
  Bfloat16Values expected;
  for (std::size_t i = 0; i < kElements; ++i)
    expected.push_back(
        static_cast<Eigen::bfloat16>(static_cast<float>(a[i]) + static_cast<float>(b[i])));
  Bfloat16Values sum(kElements);
  add(a.data(), b.data(), std::ssize(a), sum.data());
  EXPECT_EQ(bits_of(sum), bits_of(expected));
  Bfloat16Values in_place = a;
  add(in_place.data(), b.data(), std::ssize(a), in_place.data());
  EXPECT_EQ(bits_of(in_place), bits_of(expected)) << "the sum is the first addend";
  in_place = b;
  add(a.data(), in_place.data(), std::ssize(a), in_place.data());
  EXPECT_EQ(bits_of(in_place), bits_of(expected)) << "the sum is the second addend";
}

TEST(FloatRows, AddFloat32InPlace) {
  const std::vector<float> a = random_numbers(kElements, 4);
  const std::vector<float> b = random_numbers(kElements, 5);
  std::vector<float> sum = a;
  add(sum.data(), b.data(), std::ssize(a), sum.data());
  for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << i;
}

TEST(FloatRows, AreAddedToUnroundedSums) {
  const Bfloat16Values values = narrowed(random_numbers(77, 6));
  std::vector<float> sums = random_numbers(values.size(), 7);
  const std::vector<float> before = sums;
  add_to(sums.data(), values.data(), std::ssize(values));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(sums[i], before[i] + static_cast<float>(values[i])) << i;
}

TEST(FloatRows, AssignAnExpressionOfTheirOwnElements) {
  Bfloat16Values values = narrowed(random_numbers(kElements, 8));
  const Bfloat16Values before = values;
  for_blocks(std::ssize(values), [&](std::int64_t first, std::int64_t count) {
    FloatBlock scratch;
    const auto x = widened(values.data() + first, count, scratch.data());
    assign(x * 3.0f, values.data() + first, count, scratch.data());
  });
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(values[i]),
              static_cast<float>(static_cast<Eigen::bfloat16>(static_cast<float>(before[i]) * 3)))
        << i;
}

}  // namespace
}  // namespace lockstep::inline v0::model::cpu
