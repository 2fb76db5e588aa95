#include "lockstep/data/image/image.h"

#include <gtest/gtest.h>

#include "lockstep/data/image/recipe.h"
#include "tests/data/image/encode.h"

namespace lockstep::inline v0::data {
namespace {

TEST(PixelSink, CutsOutAHole) {
  const Image image = noisy_image(4, 5);
  Bytes output(std::size_t{4} * 5 * 3);
  PixelSink sink(output, 4, 5, 3);
  sink.cut_out({1, 2, 3, 1}, {10, 20, 30});
  copy_part(image.view(), {0, 0, 5, 4}, false, sink);
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 5; ++x) {
      const bool in_hole = y == 2 && x >= 1 && x < 4;
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(output[static_cast<std::size_t>((y * 5 + x) * 3 + c)],
                  in_hole ? 10 * (c + 1) : image.view().at(x, y)[c]);
    }
  }
}

TEST(PixelSink, WritesFloatsThatAreTheNormalizedBytes) {
  const Image image = noisy_image(6, 5);
  const Normalizer normalizer(kCifar10Normalization, 3);
  std::vector<float> floats(std::size_t{6} * 5 * 3);
  std::vector<std::uint8_t> row;
  PixelSink sink(floats, 6, 5, normalizer, row);
  copy_part(image.view(), {-1, 2, 5, 6}, true, sink);
  std::vector<float> expected(floats.size());
  Bytes bytes(floats.size());
  PixelSink byte_sink(bytes, 6, 5, 3);
  copy_part(image.view(), {-1, 2, 5, 6}, true, byte_sink);
  normalizer.normalize(bytes, expected);
  EXPECT_EQ(floats, expected);
}

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

TEST(Normalizer, UsesTheFirstConstantsForOneChannel) {
  const Normalizer normalizer({.channels = 1, .mean = {0.5f, 9, 9}, .deviation = {0.25f, 9, 9}}, 1);
  std::vector<float> floats(2);
  normalizer.normalize(Bytes{0, 255}, floats);
  EXPECT_EQ(floats, (std::vector<float>{-2, 2}));
}

Bytes copied(const Image& image, const Rectangle& part, bool flip) {
  Bytes output(static_cast<std::size_t>(part.height) * part.width * image.channels(), 99);
  PixelSink sink(output, part.height, part.width, image.channels());
  copy_part(image.view(), part, flip, sink);
  return output;
}

TEST(CopyPart, MatchesSeparateCropFlipAndPadding) {
  for (const int channels : {1, 3}) {
    const Image image = noisy_image(5, 7, channels);
    for (const bool flip : {false, true}) {
      for (int x = -8; x <= 8; ++x) {
        for (int y = -6; y <= 6; ++y) {
          const Rectangle part = {x, y, 4, 3};
          const Bytes output = copied(image, part, flip);
          for (int row = 0; row < 3; ++row) {
            for (int column = 0; column < 4; ++column) {
              const int from_x = x + (flip ? 3 - column : column);
              const int from_y = y + row;
              const bool inside = from_x >= 0 && from_x < 7 && from_y >= 0 && from_y < 5;
              for (int c = 0; c < channels; ++c)
                ASSERT_EQ(output[static_cast<std::size_t>((row * 4 + column) * channels + c)],
                          inside ? image.view().at(from_x, from_y)[c] : 0);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
