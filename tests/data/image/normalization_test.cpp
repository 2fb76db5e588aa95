#include "lockstep/data/image/pixel_sink.h"

#include <gtest/gtest.h>

#include "tests/data/image/encode.h"

namespace lockstep::data {
namespace {

TEST(Normalizer, ComputesInFloatsInThisOrder) {
  const Normalizer normalizer(kImageNetNormalization, 3);
  for (int value = 0; value < 256; ++value) {
    const Bytes pixel(3, static_cast<std::uint8_t>(value));
    std::vector<float> floats(3);
    normalizer.normalize(pixel, floats);
    for (std::size_t c = 0; c < 3; ++c) {
      volatile float unit = static_cast<float>(value) / 255.0f;
      volatile float centered = unit - kImageNetNormalization.mean[c];
      EXPECT_EQ(floats[c], centered / kImageNetNormalization.deviation[c]);
    }
  }
}

TEST(Normalizer, TakesTheFirstConstantsForOneChannel) {
  const Normalizer normalizer({.channels = 1, .mean = {0.5f, 9, 9}, .deviation = {0.25f, 9, 9}}, 1);
  std::vector<float> floats(2);
  normalizer.normalize(Bytes{0, 255}, floats);
  EXPECT_EQ(floats, (std::vector<float>{-2, 2}));
}

}  // namespace
}  // namespace lockstep::data
