#include "lockstep/data/image/decode_image.h"

#include <gtest/gtest.h>

#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

TEST(ImageDecoder, DetectsFormatsByContent) {
  const Image original = smooth_image(16, 24);
  ImageDecoder decoder;
  const Bytes png = encode_png(original.view());
  EXPECT_EQ(decoder.open(png), (ImageHeader{16, 24, 3}));
  EXPECT_EQ(pixels_of(decoder.decode(3)), pixels_of(original.view()));
  const Bytes jpeg = encode_jpeg(original.view());
  EXPECT_EQ(decoder.open(jpeg), (ImageHeader{16, 24, 3}));
  EXPECT_LE(difference(decoder.decode(3), original.view()).largest, 8);
}

TEST(ImageDecoder, ReportsTheFirstBytesOfUnknownFormats) {
  ImageDecoder decoder;
  const Bytes unknown = {'l', 'o', 'c', 'k', 's', 't', 1, 0, 1};
  EXPECT_EQ(
      data_error_of([&] { decoder.open(unknown); }),
      "[image] expected a JPEG or a PNG image; its 9 bytes begin with 6c 6f 63 6b 73 74 01 00");
  const Bytes gif = {'G', 'I', 'F', '8', '9', 'a', 1, 0, 1};
  EXPECT_EQ(data_error_of([&] { decoder.open(gif); }),
            "[image] expected a JPEG or a PNG image; it is a GIF image, which is not supported: "
            "convert it");
  EXPECT_EQ(data_error_of([&] { decoder.open({}); }),
            "[image] expected a JPEG or a PNG image; there are no bytes");
}

TEST(ImageDecoder, DecodesThePartOfAPng) {
  const Image original = noisy_image(16, 24);
  ImageDecoder decoder;
  const Bytes png = encode_png(original.view());
  decoder.open(png);
  const DecodedPart part = decoder.decode({.part = {5, 6, 10, 8}, .height = 2, .width = 2}, 3);
  EXPECT_EQ(pixels_of(part.pixels), pixels_of(original.view().crop({5, 6, 10, 8})));
  EXPECT_EQ(part.x, 0);
  EXPECT_EQ(part.width, 10);
  EXPECT_EQ(part.height, 8);
}

TEST(ImageDecoder, DecodesAJpegAtTheSmallestSufficientSize) {
  const Bytes jpeg = encode_jpeg(smooth_image(128, 128).view());
  ImageDecoder decoder;
  const auto width_of = [&](const WantedPart& wanted) {
    decoder.open(jpeg);
    return decoder.decode(wanted, 3).width;
  };
  EXPECT_EQ(width_of({.part = {0, 0, 128, 128}, .height = 128, .width = 128}), 128);
  EXPECT_EQ(width_of({.part = {0, 0, 128, 128}, .height = 64, .width = 65}), 128);
  EXPECT_EQ(width_of({.part = {0, 0, 128, 128}, .height = 64, .width = 64}), 64);
  EXPECT_EQ(width_of({.part = {0, 0, 128, 128}, .height = 32, .width = 8}), 32);
  EXPECT_EQ(width_of({.part = {0, 0, 128, 128}, .height = 1, .width = 1}), 16);
}

TEST(ImageDecoder, FindsThePartInTheReducedImage) {
  const Bytes jpeg = encode_jpeg(smooth_image(128, 128).view());
  ImageDecoder decoder;
  decoder.open(jpeg);
  const DecodedPart part = decoder.decode({.part = {13, 22, 42, 40}, .height = 10, .width = 10}, 3);
  // At 1/4: from 3.25 to 13.75, of pixels 3 to 13; from 5.5 to 15.5, of pixels 5 to 15.
  EXPECT_EQ(part.pixels.width, 11);
  EXPECT_EQ(part.pixels.height, 11);
  EXPECT_EQ(part.x, 0.25);
  EXPECT_EQ(part.width, 10.5);
  EXPECT_EQ(part.y, 0.5);
  EXPECT_EQ(part.height, 10);
}

}  // namespace
}  // namespace lockstep::inline v0::data
