#include "data/source/pixels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/support.h"

namespace lockstep::data {
namespace {

TEST(Pixels, AreDividedBy255WithOneRounding) {
  std::vector<std::uint8_t> pixels(256);
  std::vector<float> floats(256);
  for (std::size_t i = 0; i < 256; ++i) pixels[i] = static_cast<std::uint8_t>(i);
  pixels_to_floats(pixels, floats);
  for (std::size_t i = 0; i < 256; ++i) EXPECT_EQ(floats[i], static_cast<float>(i) / 255.0f) << i;
  std::vector<std::uint8_t> back(256);
  floats_to_pixels(floats, back);
  EXPECT_EQ(back, pixels);
}

}  // namespace
}  // namespace lockstep::data
