// Synthetic images for tests, encoded by the image libraries.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/image/image.h"

namespace lockstep::inline v0::data {

using Bytes = std::vector<std::uint8_t>;

/// The bytes as a string, for files and Example features.
inline std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

/// Smooth colors, which JPEG changes little, different in every channel and direction.
Image smooth_image(int height, int width, int channels = 3);
/// Every pixel differs from its neighbors.
Image noisy_image(int height, int width, int channels = 3);
Image constant_image(int height, int width, std::vector<std::uint8_t> pixel);

enum class JpegColor { gray, ycc_444, ycc_422, ycc_420, rgb, cmyk, adobe_ycck };

struct JpegStyle {
  JpegColor color = JpegColor::ycc_420;
  int quality = 90;
  bool progressive = false;
  int restart_rows = 0;
};

/// `image` has 1 channel for gray, 3 otherwise; for CMYK ink is 255 - light and there is no black.
Bytes encode_jpeg(const ImageView& image, const JpegStyle& style = {});

struct PngStyle {
  int color_type = 2;  ///< libpng's: 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha
  int bits = 8;
  bool interlaced = false;
};

/// `pixels` are rows as PNG stores them, [height, width, samples of the type]; a palette's entry i
/// is (i, 255 - i, 7).
Bytes encode_png(const Bytes& rows, int height, int width, const PngStyle& style = {});
Bytes encode_png(const ImageView& image);

/// The pixels without gaps between rows.
Bytes pixels_of(const ImageView& view);

/// The largest and the mean difference of two images of the same size.
struct Difference {
  int largest = 0;
  double mean = 0;
};
Difference difference(const ImageView& left, const ImageView& right);

}  // namespace lockstep::inline v0::data
