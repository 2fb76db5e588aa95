#include "lockstep/data/image/augmentation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

constexpr int kSamples = 20000;

SampleKey key_of(std::int64_t record) { return {.seed = 7, .epoch = 3, .record_id = record}; }

TEST(SampleRandom, DependsOnExactlyItsKey) {
  const SampleKey key = {1, 2, 3};
  EXPECT_EQ(SampleRandom("flip", key).word(), SampleRandom("flip", key).word());
  const std::set<std::uint32_t> words = {
      SampleRandom("flip", key).word(), SampleRandom("crop", key).word(),
      SampleRandom("flip", {0, 2, 3}).word(), SampleRandom("flip", {1, 0, 3}).word(),
      SampleRandom("flip", {1, 2, 0}).word()};
  EXPECT_EQ(words.size(), 5u);
  SampleRandom random("flip", key);
  std::set<std::uint32_t> sequence;
  for (int i = 0; i < 100; ++i) sequence.insert(random.word());
  EXPECT_EQ(sequence.size(), 100u);
}

TEST(ChoosePaddedCrop, IsUniformOverPositions) {
  std::map<std::pair<int, int>, int> times;
  for (int i = 0; i < kSamples; ++i) {
    const Rectangle part = choose_padded_crop(key_of(i), 32, 32, 4, 32, 32);
    EXPECT_EQ(part, choose_padded_crop(key_of(i), 32, 32, 4, 32, 32));
    EXPECT_EQ(part.width, 32);
    EXPECT_EQ(part.height, 32);
    ++times[{part.x, part.y}];
  }
  EXPECT_EQ(times.size(), 81u);
  double chi_square = 0;
  for (const auto& [place, count] : times) {
    EXPECT_LE(std::max(std::abs(place.first), std::abs(place.second)), 4);
    const double off = count - kSamples / 81.0;
    chi_square += off * off / (kSamples / 81.0);
  }
  EXPECT_LT(chi_square, 132);  // 80 degrees of freedom: exceeded by 2 of 10,000 fair generators
}

TEST(ChoosePaddedCrop, NamesAnImageThatIsTooSmall) {
  EXPECT_EQ(data_error_of([] { choose_padded_crop(key_of(0), 23, 40, 4, 32, 32); }),
            "[random crop] expected images of at least 24 x 24 for crops of 32 x 32 with padding "
            "4; one is 23 x 40");
}

TEST(CenterOffset, RoundsHalvesToTheEvenSide) {
  EXPECT_EQ(center_offset(256, 224), 16);
  EXPECT_EQ(center_offset(341, 224), 58);  // 58.5
  EXPECT_EQ(center_offset(343, 224), 60);  // 59.5
}

TEST(ChooseResizedCrop, IsUniformInAreaWithinTheRange) {
  const ResizedCropRange range;
  double mean_area = 0;
  double least = 1;
  double most = 0;
  for (int i = 0; i < kSamples; ++i) {
    // All areas fit in an image this wide, except with ratios that exceed its height.
    const Rectangle part = choose_resized_crop(key_of(i), 2000, 2000, range);
    EXPECT_GE(part.x, 0);
    EXPECT_GE(part.y, 0);
    EXPECT_LE(part.x + part.width, 2000);
    EXPECT_LE(part.y + part.height, 2000);
    const double ratio = static_cast<double>(part.width) / part.height;
    EXPECT_GT(ratio, 0.75 - 0.002);
    EXPECT_LT(ratio, 4.0 / 3 + 0.002);
    const double area = static_cast<double>(part.width) * part.height / 4e6;
    mean_area += area / kSamples;
    least = std::min(least, area);
    most = std::max(most, area);
  }
  EXPECT_NEAR(least, 0.08, 0.002);
  EXPECT_GT(most, 0.98);
  EXPECT_LE(most, 1);
  // An area a above 3/4 fits for -ln(a) / ln(4/3) of the ratios, which lowers the mean from 0.54 to
  // 0.4778.
  EXPECT_NEAR(mean_area, 0.4778, 0.006);
}

TEST(ChooseResizedCrop, HasRatiosUniformInTheLogarithm) {
  int wide = 0;
  for (int i = 0; i < kSamples; ++i) {
    const Rectangle part = choose_resized_crop(key_of(i), 1000, 1000, {{0.1, 0.2}, {0.5, 2}});
    wide += part.width > part.height ? 1 : 0;
  }
  EXPECT_NEAR(wide / static_cast<double>(kSamples), 0.5, 0.015);
}

TEST(ChooseResizedCrop, FallsBackToTheCenter) {
  // In a strip, each try is higher than 10, so the widest allowed center is used.
  EXPECT_EQ(choose_resized_crop(key_of(1), 10, 1000, {{0.5, 1}, {0.75, 4.0 / 3}}),
            (Rectangle{493, 0, 13, 10}));
  EXPECT_EQ(choose_resized_crop(key_of(1), 1000, 10, {{0.5, 1}, {0.75, 4.0 / 3}}),
            (Rectangle{0, 493, 10, 13}));
  // One pixel is always its own crop.
  EXPECT_EQ(choose_resized_crop(key_of(1), 1, 1, {}), (Rectangle{0, 0, 1, 1}));
}

TEST(ChooseFlip, FlipsWithTheGivenProbability) {
  int flips = 0;
  int rare = 0;
  for (int i = 0; i < kSamples; ++i) {
    flips += choose_flip(key_of(i)) ? 1 : 0;
    rare += choose_flip(key_of(i), 0.1) ? 1 : 0;
    EXPECT_TRUE(choose_flip(key_of(i), 1));
    EXPECT_FALSE(choose_flip(key_of(i), 0));
  }
  EXPECT_NEAR(flips / static_cast<double>(kSamples), 0.5, 0.015);
  EXPECT_NEAR(rare / static_cast<double>(kSamples), 0.1, 0.01);
}

TEST(ChooseCutout, CentersOnAnyPixelAndStaysInside) {
  std::set<int> widths;
  for (int i = 0; i < kSamples; ++i) {
    const Rectangle hole = choose_cutout(key_of(i), 32, 32, 16);
    EXPECT_GE(hole.x, 0);
    EXPECT_GE(hole.y, 0);
    EXPECT_LE(hole.x + hole.width, 32);
    EXPECT_LE(hole.y + hole.height, 32);
    EXPECT_GT(hole.height, 0);
    widths.insert(hole.width);
  }
  EXPECT_EQ(*widths.begin(), 8);
  EXPECT_EQ(*widths.rbegin(), 16);
  EXPECT_EQ(widths.size(), 9u);
}

Bytes jittered(const ColorJitter& jitter, Image image) {
  jitter_colors(jitter, image.span());
  return pixels_of(image.view());
}

TEST(ChooseErasing, ErasesInsideTheImageWithTheGivenProbability) {
  int erased = 0;
  for (int i = 0; i < kSamples; ++i) {
    const auto hole = choose_erasing(key_of(i), 40, 60, 0.25);
    ASSERT_EQ(hole, choose_erasing(key_of(i), 40, 60, 0.25));
    if (!hole) continue;
    ++erased;
    const double area = hole->width * hole->height / (40.0 * 60);
    const double ratio = static_cast<double>(hole->height) / hole->width;
    EXPECT_TRUE(area > 0.015 && area < 0.35 && ratio > 0.25 && ratio < 3.9) << area << " " << ratio;
    EXPECT_TRUE(hole->x >= 0 && hole->y >= 0 && hole->x + hole->width <= 60 &&
                hole->y + hole->height <= 40);
  }
  EXPECT_NEAR(erased, kSamples / 4, 5 * std::sqrt(kSamples * 0.25 * 0.75));
  EXPECT_FALSE(choose_erasing(key_of(0), 1, 1, 1).has_value()) << "none fits";
}

TEST(ChooseColorJitter, CoversItsRange) {
  double least = 2;
  double most = 0;
  for (int i = 0; i < 5000; ++i) {
    const SampleKey key = {1, 2, i};
    const ColorJitter jitter =
        choose_color_jitter(key, {.brightness = 0.4, .contrast = 2, .saturation = 0});
    EXPECT_EQ(jitter.brightness, choose_color_jitter(key, {.brightness = 0.4}).brightness);
    least = std::min(least, jitter.brightness);
    most = std::max(most, jitter.brightness);
    EXPECT_GE(jitter.contrast, 0);
    EXPECT_LE(jitter.contrast, 3);
    EXPECT_EQ(jitter.saturation, 1);
  }
  EXPECT_NEAR(least, 0.6, 0.01);
  EXPECT_NEAR(most, 1.4, 0.01);
}

TEST(JitterColors, IsIdentityAtFactorsOfOne) {
  const Image image = noisy_image(5, 6);
  EXPECT_EQ(jittered({}, image), pixels_of(image.view()));
}

TEST(JitterColors, BrightnessMultiplies) {
  EXPECT_EQ(jittered({.brightness = 1.5}, constant_image(1, 1, {10, 101, 200})),
            (Bytes{15, 152, 255}));
  EXPECT_EQ(jittered({.brightness = 0}, constant_image(1, 1, {10, 101, 200})), (Bytes{0, 0, 0}));
}

TEST(JitterColors, ContrastMovesFromTheMeanLuma) {
  Image image = constant_image(1, 2, {100});
  image.span().at(1, 0)[0] = 140;
  EXPECT_EQ(jittered({.contrast = 2}, image), (Bytes{80, 160}));
  EXPECT_EQ(jittered({.contrast = 0.5}, image), (Bytes{110, 130}));
  // Luma of (100, 200, 50) is 153.
  EXPECT_EQ(jittered({.contrast = 0}, constant_image(2, 2, {100, 200, 50})), Bytes(12, 153));
}

TEST(JitterColors, SaturationMovesFromThePixelsOwnLuma) {
  EXPECT_EQ(jittered({.saturation = 0}, constant_image(1, 1, {100, 200, 50})), Bytes(3, 153));
  EXPECT_EQ(jittered({.saturation = 2}, constant_image(1, 1, {100, 200, 50})), (Bytes{47, 247, 0}));
  EXPECT_EQ(jittered({.saturation = 2}, constant_image(1, 1, {100})), (Bytes{100}));
}

}  // namespace
}  // namespace lockstep::inline v0::data
