#include "lockstep/data/image/decode_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using ::testing::HasSubstr;

const std::vector<JpegStyle> kStyles = {
    {JpegColor::ycc_420},           {JpegColor::ycc_422},
    {JpegColor::ycc_444},           {JpegColor::rgb},
    {JpegColor::ycc_420, 90, true}, {.color = JpegColor::ycc_420, .restart_rows = 1}};

Rectangle whole_of(const ImageHeader& header) { return {0, 0, header.width, header.height}; }

TEST(JpegDecoder, ReadsTheHeaderAndThePixels) {
  const Image original = smooth_image(45, 70);
  JpegDecoder decoder;
  Image memory;
  for (const JpegStyle& style : kStyles) {
    const Bytes bytes = encode_jpeg(original.view(), style);
    EXPECT_EQ(decoder.open(bytes), (ImageHeader{45, 70, 3}));
    const Difference off = difference(decoder.decode(3, memory), original.view());
    EXPECT_LE(off.largest, 8);
    EXPECT_LE(off.mean, 2.0);
  }
}

TEST(JpegDecoder, RepeatsGrayAndDropsColor) {
  const Image gray = smooth_image(20, 30, 1);
  const Bytes gray_bytes = encode_jpeg(gray.view(), {JpegColor::gray});
  JpegDecoder decoder;
  Image memory;
  EXPECT_EQ(decoder.open(gray_bytes), (ImageHeader{20, 30, 1}));
  EXPECT_LE(difference(decoder.decode(1, memory), gray.view()).largest, 4);
  decoder.open(gray_bytes);
  const ImageView repeated = decoder.decode(3, memory);
  for (int x = 0; x < 30; ++x) {
    EXPECT_EQ(repeated.at(x, 7)[0], repeated.at(x, 7)[1]);
    EXPECT_EQ(repeated.at(x, 7)[0], repeated.at(x, 7)[2]);
  }
  const Image red = constant_image(8, 8, {200, 0, 0});
  const Bytes red_bytes = encode_jpeg(red.view(), {JpegColor::ycc_444, 100});
  decoder.open(red_bytes);
  EXPECT_NEAR(decoder.decode(1, memory).at(3, 3)[0], 0.299 * 200, 2);
}

TEST(JpegDecoder, ConvertsCmyk) {
  const Image original = smooth_image(24, 40);
  JpegDecoder decoder;
  Image memory;
  for (const JpegColor color : {JpegColor::cmyk, JpegColor::adobe_ycck}) {
    const Bytes bytes = encode_jpeg(original.view(), {color, 95});
    EXPECT_EQ(decoder.open(bytes).channels, 3);
    EXPECT_LE(difference(decoder.decode(3, memory), original.view()).largest, 10);
    decoder.open(bytes);
    const std::uint8_t* pixel = original.view().at(11, 5);
    EXPECT_NEAR(decoder.decode(1, memory).at(11, 5)[0],
                0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2], 8);
  }
}

TEST(JpegDecoder, DecodesAtAFractionOfTheSize) {
  const Image original = smooth_image(45, 70);
  const Bytes bytes = encode_jpeg(original.view());
  JpegDecoder decoder;
  Image memory;
  const std::vector<std::pair<int, ImageHeader>> sizes = {
      {1, {45, 70, 3}}, {2, {23, 35, 3}}, {4, {12, 18, 3}}, {8, {6, 9, 3}}};
  for (const auto& [denominator, size] : sizes) {
    decoder.open(bytes);
    const ImageView small = decoder.decode(whole_of(size), denominator, 3, memory);
    ASSERT_EQ(small.width, size.width);
    ASSERT_EQ(small.height, size.height);
    // The center of a scaled pixel is the center of those that it covers.
    const int x = small.width / 2;
    const int y = small.height / 2;
    const std::uint8_t* there =
        original.view().at(x * denominator + denominator / 2, y * denominator + denominator / 2);
    for (int c = 0; c < 3; ++c)
      EXPECT_NEAR(small.at(x, y)[c], there[c], 8) << "at 1/" << denominator;
  }
}

TEST(JpegDecoder, DecodesThePartOfTheWholeImage) {
  const Image original = noisy_image(61, 83);
  JpegDecoder decoder;
  Image whole_memory;
  Image memory;
  for (const JpegStyle& style : kStyles) {
    const Bytes bytes = encode_jpeg(original.view(), style);
    for (const int denominator : {1, 2, 4, 8}) {
      decoder.open(bytes);
      const ImageHeader size = {(61 + denominator - 1) / denominator,
                                (83 + denominator - 1) / denominator, 3};
      const ImageView all = decoder.decode(whole_of(size), denominator, 3, whole_memory);
      for (int x = 0; x < size.width; x += 3) {
        for (int y = 0; y < size.height; y += 5) {
          const Rectangle part = {x, y, std::min(1 + x % 17, size.width - x),
                                  std::min(1 + y % 13, size.height - y)};
          decoder.open(bytes);
          ASSERT_EQ(pixels_of(decoder.decode(part, denominator, 3, memory)),
                    pixels_of(all.crop(part)))
              << x << ", " << y << " at 1/" << denominator;
        }
      }
    }
  }
}

TEST(JpegDecoder, ReportsLibjpegErrors) {
  JpegDecoder decoder;
  const Bytes nothing;
  EXPECT_EQ(
      data_error_of([&] { decoder.open(nothing); }),
      "[JPEG image] expected an intact image; the decoder reports: Premature end of input file");
  const Bytes text = {'h', 'e', 'l', 'l', 'o'};
  EXPECT_EQ(data_error_of([&] { decoder.open(text); }),
            "[JPEG image] expected an intact image; the decoder reports: Not a JPEG file: starts "
            "with 0x68 0x65");
}

TEST(JpegDecoder, RefusesMorePixelsThanAllowed) {
  const Bytes bytes = encode_jpeg(smooth_image(10, 11).view());
  JpegDecoder decoder(109);
  EXPECT_EQ(data_error_of([&] { decoder.open(bytes); }),
            "[JPEG image] expected at most 109 pixels; the header announces 10 x 11");
  JpegDecoder(110).open(bytes);
}

/// The JPEG `bytes` with other extents in the header.
Bytes with_extents(Bytes bytes, int height, int width) {
  for (std::size_t i = 0; i + 8 < bytes.size(); ++i) {
    if (bytes[i] != 0xff || (bytes[i + 1] != 0xc0 && bytes[i + 1] != 0xc2)) continue;  // SOF0, SOF2
    bytes[i + 5] = static_cast<std::uint8_t>(height >> 8);
    bytes[i + 6] = static_cast<std::uint8_t>(height & 0xff);
    bytes[i + 7] = static_cast<std::uint8_t>(width >> 8);
    bytes[i + 8] = static_cast<std::uint8_t>(width & 0xff);
    return bytes;
  }
  ADD_FAILURE() << "no frame";
  return bytes;
}

TEST(JpegDecoder, RefusesMorePixelsThanTheDefault) {
  const Bytes bytes =
      with_extents(encode_jpeg(smooth_image(16, 16).view(), {.progressive = true}), 16384, 16384);
  EXPECT_LT(bytes.size(), 2000u);
  JpegDecoder decoder;
  EXPECT_EQ(data_error_of([&] { decoder.open(bytes); }),
            "[JPEG image] expected at most 67108864 pixels; the header announces 16384 x 16384");
}

/// All coefficients of a progressive image are in memory: six bytes per pixel at 4:4:4.
TEST(JpegDecoder, LimitsTheMemoryOfAProgressiveImage) {
  const JpegStyle style = {.color = JpegColor::ycc_444, .progressive = true};
  const Bytes bytes = with_extents(encode_jpeg(smooth_image(16, 16).view(), style), 8000, 8000);
  JpegDecoder decoder;
  Image memory;
  decoder.open(bytes);
  EXPECT_EQ(data_error_of([&] { decoder.decode(3, memory); }),
            "[JPEG image] expected an image that decodes within 272 MiB, got more");
  const Bytes sound = encode_jpeg(smooth_image(16, 16).view(), style);
  decoder.open(sound);
  EXPECT_EQ(decoder.decode(3, memory).width, 16) << "the decoder can still be used";
}

TEST(JpegDecoder, RejectsLibjpegWarnings) {
  Bytes bytes = encode_jpeg(noisy_image(16, 16).view());
  bytes.erase(bytes.end() - 40, bytes.end() - 2);
  JpegDecoder decoder;
  Image memory;
  EXPECT_THAT(data_error_of([&] {
                decoder.open(bytes);
                decoder.decode(3, memory);
              }),
              HasSubstr("premature end of data segment"));
}

TEST(JpegDecoder, IgnoresTrailingPadding) {
  const Bytes bytes = encode_jpeg(smooth_image(16, 16).view());
  Bytes padded = bytes;
  padded.insert(padded.end() - 2, 40, 1);
  JpegDecoder decoder;
  Image memory;
  decoder.open(bytes);
  const Bytes expected = pixels_of(decoder.decode(3, memory));
  decoder.open(padded);
  EXPECT_EQ(pixels_of(decoder.decode(3, memory)), expected);
}

TEST(JpegDecoder, FailsWhereverTheFileIsCutShort) {
  JpegDecoder decoder;
  Image memory;
  for (const bool progressive : {false, true}) {
    const Bytes bytes = encode_jpeg(noisy_image(24, 24).view(), {.progressive = progressive});
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::span<const std::uint8_t> beginning(bytes.data(), size);
      for (const int rows : {24, 1}) {
        data_error_of([&] {
          decoder.open(beginning);
          decoder.decode({0, 0, 24, rows}, 1, 3, memory);
        });
      }
    }
    decoder.open(bytes);
    decoder.decode(3, memory);
  }
}

/// The result of a damaged image: pixels, or an Error (data).
void decode_damaged(JpegDecoder& decoder, const Bytes& bytes, const Rectangle& part,
                    Image& memory) {
  try {
    const ImageHeader size = decoder.open(bytes);
    if (part.x + part.width <= size.width && part.y + part.height <= size.height)
      decoder.decode(part, 1, 3, memory);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::data);
  }
}

TEST(JpegDecoder, SurvivesAFlippedBitAnywhere) {
  const Image original = noisy_image(20, 20);
  JpegDecoder decoder(1 << 16);
  Image memory;
  for (const bool progressive : {false, true}) {
    const JpegStyle style = {.progressive = progressive};
    const Bytes bytes = encode_jpeg(original.view(), style);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        Bytes damaged = bytes;
        damaged[i] = static_cast<std::uint8_t>(damaged[i] ^ (1 << bit));
        decode_damaged(decoder, damaged, {0, 0, 20, 20}, memory);
        decode_damaged(decoder, damaged, {5, 6, 9, 7}, memory);
      }
    }
    // Damaged images leave no state in the decoder.
    Image fresh_memory;
    JpegDecoder fresh;
    fresh.open(bytes);
    decoder.open(bytes);
    EXPECT_EQ(pixels_of(decoder.decode(3, memory)), pixels_of(fresh.decode(3, fresh_memory)));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::data
