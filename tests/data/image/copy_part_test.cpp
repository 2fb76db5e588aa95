#include "lockstep/data/image/pixel_sink.h"

#include <gtest/gtest.h>

#include "tests/data/image/encode.h"

namespace lockstep::data {
namespace {

Bytes copied(const Image& image, const Rectangle& part, bool flip) {
  Bytes output(static_cast<std::size_t>(part.height) * part.width * image.channels(), 99);
  PixelSink sink(output, part.height, part.width, image.channels());
  copy_part(image.view(), part, flip, sink);
  return output;
}

TEST(CopyPart, CropsFlipsAndPadsAsOneByOneWould) {
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
}  // namespace lockstep::data
