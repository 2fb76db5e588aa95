#include "lockstep/data/image/pixel_sink.h"

#include <gtest/gtest.h>

#include "tests/data/image/encode.h"

namespace lockstep::data {
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

}  // namespace
}  // namespace lockstep::data
