#include "lockstep/data/image/decode_image.h"

#include <gtest/gtest.h>

#include "lockstep/data/image/encode_png.h"
#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

TEST(DecodePng, RoundTripsPixels) {
  for (const int channels : {1, 3}) {
    const Image original = noisy_image(13, 17, channels);
    const Bytes bytes = encode_png(original.view());
    EXPECT_EQ(read_png_header(bytes), (ImageHeader{13, 17, channels}));
    Image memory;
    EXPECT_EQ(pixels_of(decode_png(bytes, channels, memory)), pixels_of(original.view()));
  }
}

TEST(ToPng, RoundTripsAnyStride) {
  for (const int channels : {1, 3}) {
    const Image original = noisy_image(13, 17, channels);
    const Rectangle part{.x = 2, .y = 3, .width = 7, .height = 5};
    for (const ImageView& view : {original.view(), original.view().crop(part)}) {
      const std::string file = to_png(view);
      EXPECT_EQ(read_png_header(bytes_of(file)), (ImageHeader{view.height, view.width, channels}));
      Image memory;
      EXPECT_EQ(pixels_of(decode_png(bytes_of(file), channels, memory)), pixels_of(view));
    }
  }
}

TEST(DecodePng, ReadsInterlacedImages) {
  const Image original = noisy_image(13, 17);
  const Bytes bytes = encode_png(pixels_of(original.view()), 13, 17, {.interlaced = true});
  Image memory;
  EXPECT_EQ(pixels_of(decode_png(bytes, 3, memory)), pixels_of(original.view()));
}

TEST(DecodePng, DropsAlpha) {
  Image memory;
  const Bytes colored = encode_png({1, 2, 3, 0, 4, 5, 6, 128}, 1, 2, {.color_type = 6});
  EXPECT_EQ(read_png_header(colored), (ImageHeader{1, 2, 3}));
  EXPECT_EQ(pixels_of(decode_png(colored, 3, memory)), (Bytes{1, 2, 3, 4, 5, 6}));
  const Bytes gray = encode_png({7, 0, 9, 255}, 1, 2, {.color_type = 4});
  EXPECT_EQ(read_png_header(gray), (ImageHeader{1, 2, 1}));
  EXPECT_EQ(pixels_of(decode_png(gray, 1, memory)), (Bytes{7, 9}));
}

TEST(DecodePng, RoundsSixteenBitsToEight) {
  Image memory;
  // 0x0080 is 0.498 of 255ths, 0x0081 0.502.
  const Bytes bytes = encode_png({0x00, 0x80, 0x00, 0x81, 0xff, 0xff, 0x12, 0x12}, 1, 4,
                                 {.color_type = 0, .bits = 16});
  EXPECT_EQ(pixels_of(decode_png(bytes, 1, memory)), (Bytes{0, 1, 255, 0x12}));
}

TEST(DecodePng, ScalesLowBitDepths) {
  Image memory;
  const Bytes bits = encode_png({0b10100000}, 1, 3, {.color_type = 0, .bits = 1});
  EXPECT_EQ(pixels_of(decode_png(bits, 1, memory)), (Bytes{255, 0, 255}));
  const Bytes palette = encode_png({0b00011011}, 1, 4, {.color_type = 3, .bits = 2});
  EXPECT_EQ(read_png_header(palette), (ImageHeader{1, 4, 3}));
  EXPECT_EQ(pixels_of(decode_png(palette, 3, memory)),
            (Bytes{0, 255, 7, 1, 254, 7, 2, 253, 7, 3, 252, 7}));
}

TEST(DecodePng, ConvertsBetweenGrayAndColor) {
  Image memory;
  const Bytes gray = encode_png({10, 20}, 1, 2, {.color_type = 0});
  EXPECT_EQ(pixels_of(decode_png(gray, 3, memory)), (Bytes{10, 10, 10, 20, 20, 20}));
  const Bytes colored = encode_png({200, 0, 0, 0, 100, 0, 0, 0, 250}, 1, 3);
  const Bytes luma = pixels_of(decode_png(colored, 1, memory));
  EXPECT_NEAR(luma[0], 0.299 * 200, 1);
  EXPECT_NEAR(luma[1], 0.587 * 100, 1);
  EXPECT_NEAR(luma[2], 0.114 * 250, 1);
}

TEST(DecodePng, ReportsLibpngErrors) {
  const Bytes text = {'h', 'e', 'l', 'l', 'o', ' ', 'y', 'o', 'u'};
  EXPECT_EQ(data_error_of([&] { read_png_header(text); }),
            "[PNG image] expected an intact image; the decoder reports: Not a PNG file");
}

TEST(DecodePng, RefusesMorePixelsThanAllowed) {
  const Bytes bytes = encode_png(noisy_image(10, 11).view());
  EXPECT_EQ(data_error_of([&] { read_png_header(bytes, 109); }),
            "[PNG image] expected at most 109 pixels; the header announces 10 x 11");
  EXPECT_EQ(read_png_header(bytes, 110), (ImageHeader{10, 11, 3}));
}

TEST(DecodePng, FailsWhereverTheFileIsCutShort) {
  const Bytes bytes = encode_png(noisy_image(12, 12).view());
  Image memory;
  for (std::size_t size = 0; size < bytes.size(); ++size)
    data_error_of([&] { decode_png({bytes.data(), size}, 3, memory); });
}

TEST(DecodePng, FailsOrIgnoresAFlippedBitAnywhere) {
  const Image original = noisy_image(12, 12);
  const Bytes bytes = encode_png(original.view());
  Image memory;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = bytes;
      damaged[i] = static_cast<std::uint8_t>(damaged[i] ^ (1 << bit));
      // Every chunk has a checksum: without an error, no pixel changed.
      try {
        EXPECT_EQ(pixels_of(decode_png(damaged, 3, memory, 1 << 16)), pixels_of(original.view()))
            << "byte " << i;
      } catch (const Error& error) {
        EXPECT_EQ(error.category(), ErrorCategory::data);
      }
    }
  }
}

// A gamma chunk has no effect.
TEST(DecodePng, IgnoresGammaWhenConvertingToGray) {
  const Image image = constant_image(4, 4, {200, 0, 0});
  const Bytes plain = encode_png(image.view());
  const Bytes gamma = {0, 0, 0, 4, 'g', 'A', 'M', 'A', 0, 0, 0xb1, 0x8f, 0x0b, 0xfc, 0x61, 0x05};
  constexpr std::ptrdiff_t kBehindHeader = 33;
  Bytes corrected = plain;
  corrected.insert(corrected.begin() + kBehindHeader, gamma.begin(), gamma.end());
  ImageDecoder decoder;
  const auto gray = [&](const Bytes& bytes) {
    decoder.open(bytes);
    return pixels_of(decoder.decode(1));
  };
  EXPECT_EQ(gray(corrected), gray(plain));
  EXPECT_NEAR(gray(plain)[0], 60, 1);
}

}  // namespace
}  // namespace lockstep::inline v0::data
