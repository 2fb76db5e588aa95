#include "lockstep/data/image/augmentation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/data/image/encode.h"

namespace lockstep::data {
namespace {

Bytes jittered(const ColorJitter& jitter, Image image) {
  jitter_colors(jitter, image.span());
  return pixels_of(image.view());
}

TEST(ChooseColorJitter, CoversItsRange) {
  double least = 2;
  double most = 0;
  for (int i = 0; i < 5000; ++i) {
    const SampleKey key = {1, 2, i};
    const ColorJitter jitter = choose_color_jitter(key, {.brightness = 0.4, .contrast = 2, .saturation = 0});
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

TEST(JitterColors, LeavesPixelsAloneAtFactorsOfOne) {
  const Image image = noisy_image(5, 6);
  EXPECT_EQ(jittered({}, image), pixels_of(image.view()));
}

TEST(JitterColors, BrightnessMultiplies) {
  EXPECT_EQ(jittered({.brightness = 1.5}, constant_image(1, 1, {10, 101, 200})), (Bytes{15, 152, 255}));
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
}  // namespace lockstep::data
