#include "lockstep/base/pixels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep::inline v0 {
namespace {

std::vector<std::uint8_t> every_pixel() {
  std::vector<std::uint8_t> pixels(256);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  return pixels;
}

TEST(Pixels, AreDividedBy255WithOneRounding) {
  const std::vector<std::uint8_t> pixels = every_pixel();
  std::vector<float> features(256);
  pixels_to_features(pixels, {}, features);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(features[i], static_cast<float>(i) / 255.0f) << i;
  std::vector<std::uint8_t> back(256);
  features_to_pixels(features, back);
  EXPECT_EQ(back, pixels);
}

TEST(Pixels, AreNormalizedByTheirChannel) {
  const std::vector<std::uint8_t> pixels = every_pixel();
  const ChannelNormalization normalization{
      .channels = 2, .mean = {0.25f, 0.5f}, .deviation = {0.5f, 0.125f}};
  std::vector<float> features(256);
  pixels_to_features(pixels, normalization, features);
  for (std::size_t i = 0; i < 256; ++i) {
    const float feature = static_cast<float>(i) / 255.0f;
    EXPECT_EQ(features[i], i % 2 == 0 ? (feature - 0.25f) / 0.5f : (feature - 0.5f) / 0.125f) << i;
  }
}

}  // namespace
}  // namespace lockstep::inline v0
