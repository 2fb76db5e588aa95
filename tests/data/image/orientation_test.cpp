// The orientation of photos: of the eight numbers of EXIF, in files, and of crops.
#include "lockstep/data/image/orientation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/transform.h"
#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

using namespace std::string_literals;

/// A block of EXIF with an entry before that of the orientation, in either byte order.
std::string exif_of(int orientation, bool is_big_endian) {
  const char low = static_cast<char>(orientation);
  if (is_big_endian)
    return "Exif\0\0MM\0*\0\0\0\x08"s + "\0\x02"s + "\x01\x0f\0\x02\0\0\0\x04"s + "abc\0"s +
           "\x01\x12\0\x03\0\0\0\x01\0"s + low + "\0\0\0\0\0\0"s;
  return "Exif\0\0II*\0\x08\0\0\0"s + "\x02\0"s + "\x0f\x01\x02\0\x04\0\0\0"s + "abc\0"s +
         "\x12\x01\x03\0\x01\0\0\0"s + low + "\0\0\0\0\0\0\0"s;
}

/// The JPEG file `jpeg` with `block` as its segment APP1.
Bytes with_block(const Bytes& jpeg, const std::string& block) {
  const std::size_t length = block.size() + 2;
  Bytes all(jpeg.begin(), jpeg.begin() + 2);
  for (const std::size_t byte : {std::size_t{0xff}, std::size_t{0xe1}, length >> 8, length & 0xff})
    all.push_back(static_cast<std::uint8_t>(byte));
  all.insert(all.end(), block.begin(), block.end());
  all.insert(all.end(), jpeg.begin() + 2, jpeg.end());
  return all;
}

/// The gray pixels, row by row, of the image 1 2 3 / 4 5 6 in each orientation.
const std::vector<Bytes> kTurned = {{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1},
                                    {4, 5, 6, 1, 2, 3}, {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3},
                                    {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};

TEST(Orientation, TurnsPixels) {
  const Bytes pixels = {1, 2, 3, 4, 5, 6};
  Image memory;
  for (int number = 1; number <= 8; ++number) {
    const ImageView turned = Orientation::of_exif(number).turn(view_of(pixels, 2, 3, 1), memory);
    EXPECT_EQ(turned.height, number < 5 ? 2 : 3) << number;
    EXPECT_EQ(pixels_of(turned), kTurned[static_cast<std::size_t>(number) - 1]) << number;
  }
  const Bytes colors = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(pixels_of(Orientation::of_exif(2).turn(view_of(colors, 1, 2, 3), memory)),
            (Bytes{4, 5, 6, 1, 2, 3}));
  for (const int other : {0, 9, -1, 65535}) EXPECT_TRUE(Orientation::of_exif(other).is_upright());
}

TEST(Orientation, FindsThePartInTheStoredImage) {
  const Bytes pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const ImageView stored = view_of(pixels, 3, 4, 1);
  Image whole;
  Image memory;
  for (int number = 1; number <= 8; ++number) {
    const Orientation orientation = Orientation::of_exif(number);
    const ImageView upright = orientation.turn(stored, whole);
    for (const Rectangle& part : {Rectangle{0, 0, 1, 2}, {1, 0, 2, 1}, {2, 2, 1, 1}})
      EXPECT_EQ(pixels_of(orientation.turn(stored.crop(orientation.stored(part, 4, 3)), memory)),
                pixels_of(upright.crop(part)))
          << number;
  }
}

TEST(Orientation, IsReadFromAFile) {
  const Bytes jpeg = encode_jpeg(smooth_image(8, 16).view());
  EXPECT_TRUE(Orientation::of_jpeg(jpeg).is_upright());
  for (const bool is_big_endian : {false, true})
    for (int number = 1; number <= 8; ++number)
      EXPECT_EQ(Orientation::of_jpeg(with_block(jpeg, exif_of(number, is_big_endian))),
                Orientation::of_exif(number))
          << number;
  const Bytes later = with_block(with_block(jpeg, exif_of(6, true)), "http://ns.adobe.com/xap\0"s);
  EXPECT_EQ(Orientation::of_jpeg(later), Orientation::of_exif(6)) << "not the first segment";
}

TEST(Orientation, IsUprightForADamagedBlock) {
  const Bytes jpeg = encode_jpeg(smooth_image(8, 16).view());
  const std::string block = exif_of(6, false);
  const auto is_upright = [&](const std::string& damaged) {
    return Orientation::of_jpeg(with_block(jpeg, damaged)).is_upright();
  };
  for (std::size_t size = 0; size + 8 < block.size(); ++size)
    EXPECT_TRUE(is_upright(block.substr(0, size))) << size;
  for (const int number : {0, 9, 255}) EXPECT_TRUE(is_upright(exif_of(number, true)));
  std::string far = block;
  far.replace(10, 4, "\xff\xff\xff\xff");
  EXPECT_TRUE(is_upright(far)) << "a directory beyond the block";
  std::string many = block.substr(0, 16);
  many.replace(14, 2, "\xff\xff");
  EXPECT_TRUE(is_upright(many)) << "more entries than there are";
  std::string text = block;
  text[30] = 2;
  EXPECT_TRUE(is_upright(text)) << "a text instead of a number";
  const Bytes whole = with_block(jpeg, block);
  for (std::size_t size = 0; size < whole.size(); ++size)
    Orientation::of_jpeg(std::span(whole).first(size));  // reads nothing beyond the end
}

TEST(ImageDecoder, TurnsImages) {
  const Image original = smooth_image(16, 32);
  const Bytes jpeg = encode_jpeg(original.view());
  ImageDecoder decoder;
  Image memory;
  for (int number = 1; number <= 8; ++number) {
    const Bytes photo = with_block(jpeg, exif_of(number, true));
    const Orientation orientation = Orientation::of_exif(number);
    const ImageHeader header = decoder.open(photo);
    EXPECT_EQ(header, (number < 5 ? ImageHeader{16, 32, 3} : ImageHeader{32, 16, 3})) << number;
    EXPECT_LE(difference(decoder.decode(3), orientation.turn(original.view(), memory)).largest, 8)
        << number;
    EXPECT_EQ(decoder.open(photo, false), (ImageHeader{16, 32, 3}));
    EXPECT_LE(difference(decoder.decode(3), original.view()).largest, 8) << number;
  }
}

TEST(ImageDecoder, TurnsPartsOfReducedImages) {
  const Bytes jpeg = encode_jpeg(smooth_image(128, 64).view());
  ImageDecoder decoder;
  const Bytes photo = with_block(jpeg, exif_of(6, false));  // shown turned clockwise, 64 x 128
  EXPECT_EQ(decoder.open(photo), (ImageHeader{64, 128, 3}));
  const DecodedPart part = decoder.decode({.part = {13, 22, 40, 42}, .height = 10, .width = 10}, 3);
  // The stored part has the columns 22 to 64 and the rows 128 - 13 - 40 = 75 to 115. At 1/4: from
  // 5.5 to 16, of columns 5 to 15, and from 18.75 to 28.75, of rows 18 to 28.
  EXPECT_EQ(part.pixels.width, 11);
  EXPECT_EQ(part.pixels.height, 11);
  EXPECT_EQ(part.x, 0.25) << "11 - 0.75 - 10";
  EXPECT_EQ(part.width, 10);
  EXPECT_EQ(part.y, 0.5);
  EXPECT_EQ(part.height, 10.5);
}

TEST(ImageTransform, TurnsPhotosUnlessSwitchedOff) {
  const Bytes jpeg = encode_jpeg(smooth_image(32, 48).view());
  const Bytes photo = with_block(jpeg, exif_of(3, true));
  const auto pixels = [&](const char* recipe, const Bytes& image) {
    const ImageTransform transform(ImageRecipe::parse(recipe));
    Bytes output(transform.output_size());
    ImageScratch scratch;
    transform.apply(std::span<const std::uint8_t>(image), {}, output, scratch);
    return output;
  };
  Bytes turned = pixels("resize=8", photo);
  const Bytes plain = pixels("resize=8", jpeg);
  EXPECT_EQ(pixels("resize=8,exif=off", photo), plain);
  EXPECT_NE(turned, plain);
  Image memory;
  const ImageView back = Orientation::of_exif(3).turn(view_of(turned, 8, 8, 3), memory);
  EXPECT_LE(difference(back, view_of(plain, 8, 8, 3)).largest, 2);
}

}  // namespace
}  // namespace lockstep::inline v0::data
