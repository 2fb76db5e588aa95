#include "tests/data/image/encode.h"

#include <cstddef>  // jpeglib.h needs the declarations of these two
#include <cstdio>

#include <jpeglib.h>

#include <png.h>

#include <algorithm>
#include <cstdlib>

namespace lockstep::inline v0::data {
namespace {

template <typename PixelAt>
Image image_of(int height, int width, int channels, PixelAt pixel_at) {
  Image image;
  image.reshape(height, width, channels);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c)
        image.span().at(x, y)[c] = static_cast<std::uint8_t>(pixel_at(y, x, c));
    }
  }
  return image;
}

void set_color(jpeg_compress_struct& codec, JpegColor color) {
  jpeg_set_defaults(&codec);
  if (color == JpegColor::rgb) jpeg_set_colorspace(&codec, JCS_RGB);
  if (color == JpegColor::adobe_ycck) jpeg_set_colorspace(&codec, JCS_YCCK);
  if (color == JpegColor::cmyk) codec.write_Adobe_marker = FALSE;
  if (color != JpegColor::ycc_444 && color != JpegColor::ycc_422 && color != JpegColor::ycc_420)
    return;
  codec.comp_info[0].h_samp_factor = color == JpegColor::ycc_444 ? 1 : 2;
  codec.comp_info[0].v_samp_factor = color == JpegColor::ycc_420 ? 2 : 1;
}

/// A row in the encoder's format.
Bytes ink_of(const std::uint8_t* row, int width, bool inverted) {
  Bytes ink;
  for (int x = 0; x < width; ++x) {
    for (int c = 0; c < 3; ++c)
      ink.push_back(static_cast<std::uint8_t>(inverted ? row[3 * x + c] : 255 - row[3 * x + c]));
    ink.push_back(inverted ? 255 : 0);
  }
  return ink;
}

}  // namespace

Image smooth_image(int height, int width, int channels) {
  return image_of(height, width, channels, [=](int y, int x, int c) {
    return c == 0   ? 40 + 170 * x / width
           : c == 1 ? 200 - 150 * y / height
                    : 60 + 100 * (x + y) / (width + height);
  });
}

Image noisy_image(int height, int width, int channels) {
  return image_of(height, width, channels, [=](int y, int x, int c) {
    const auto place = static_cast<std::uint32_t>((y * width + x) * 3 + c);
    return static_cast<int>((place * 2654435761u) >> 24);
  });
}

Image constant_image(int height, int width, std::vector<std::uint8_t> pixel) {
  return image_of(height, width, static_cast<int>(pixel.size()),
                  [&](int, int, int c) { return pixel[static_cast<std::size_t>(c)]; });
}

Bytes encode_jpeg(const ImageView& image, const JpegStyle& style) {
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &memory, &size);
  const bool ink = style.color == JpegColor::cmyk || style.color == JpegColor::adobe_ycck;
  codec.image_width = static_cast<JDIMENSION>(image.width);
  codec.image_height = static_cast<JDIMENSION>(image.height);
  codec.input_components = ink ? 4 : image.channels;
  codec.in_color_space = ink ? JCS_CMYK : image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  set_color(codec, style.color);
  jpeg_set_quality(&codec, style.quality, TRUE);
  codec.restart_in_rows = style.restart_rows;
  if (style.progressive) jpeg_simple_progression(&codec);
  jpeg_start_compress(&codec, TRUE);
  for (int y = 0; y < image.height; ++y) {
    Bytes row(image.row(y), image.row(y) + std::ptrdiff_t{image.width} * image.channels);
    if (ink) row = ink_of(image.row(y), image.width, style.color == JpegColor::adobe_ycck);
    JSAMPROW from = row.data();
    jpeg_write_scanlines(&codec, &from, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

Bytes encode_png(const Bytes& rows, int height, int width, const PngStyle& style) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp self, png_bytep from, std::size_t count) {
        auto& to = *static_cast<Bytes*>(png_get_io_ptr(self));
        to.insert(to.end(), from, from + count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               style.bits, style.color_type,
               style.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (style.color_type == PNG_COLOR_TYPE_PALETTE) {
    std::vector<png_color> palette;
    for (int i = 0; i < 1 << style.bits; ++i)
      palette.push_back({static_cast<png_byte>(i), static_cast<png_byte>(255 - i), 7});
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_write_info(png, info);
  std::vector<png_bytep> row_pointers;
  const std::size_t row_size = rows.size() / static_cast<std::size_t>(height);
  for (int y = 0; y < height; ++y)
    row_pointers.push_back(const_cast<png_bytep>(rows.data() + y * row_size));
  png_write_image(png, row_pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

Bytes encode_png(const ImageView& image) {
  return encode_png(pixels_of(image), image.height, image.width,
                    {.color_type = image.channels == 1 ? 0 : 2});
}

Bytes pixels_of(const ImageView& view) {
  Bytes pixels;
  for (int y = 0; y < view.height; ++y)
    pixels.insert(pixels.end(), view.row(y),
                  view.row(y) + std::ptrdiff_t{view.width} * view.channels);
  return pixels;
}

Difference difference(const ImageView& left, const ImageView& right) {
  LOCKSTEP_CHECK(left.height == right.height && left.width == right.width &&
                 left.channels == right.channels);
  const Bytes ours = pixels_of(left);
  const Bytes theirs = pixels_of(right);
  Difference result;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const int distance = std::abs(ours[i] - theirs[i]);
    result.largest = std::max(result.largest, distance);
    result.mean += static_cast<double>(distance) / static_cast<double>(ours.size());
  }
  return result;
}

}  // namespace lockstep::inline v0::data
