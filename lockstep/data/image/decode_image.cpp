#include "lockstep/data/image/decode_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/image/decode_png.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kBytesShown = 8;

[[noreturn]] void throw_unknown_format(std::span<const std::uint8_t> bytes) {
  const auto first = bytes.first(std::min<std::size_t>(bytes.size(), kBytesShown));
  throw Error(ErrorCategory::data, "image", "expected a JPEG or a PNG image",
              bytes.empty() ? "there are no bytes"
                            : fmt::format("its {} bytes begin with {:02x}", bytes.size(), fmt::join(first, " ")));
}

/// The largest reduction that is still at least the wanted size.
int denominator_for(const WantedPart& wanted) {
  int denominator = 8;
  while (denominator > 1 &&
         (wanted.part.width < wanted.width * denominator || wanted.part.height < wanted.height * denominator))
    denominator /= 2;
  return denominator;
}

/// The whole pixels of the image at 1/`denominator` that `part` touches.
Rectangle touched(const Rectangle& part, int denominator) {
  const int x = part.x / denominator;
  const int y = part.y / denominator;
  return {x, y, (part.x + part.width + denominator - 1) / denominator - x,
          (part.y + part.height + denominator - 1) / denominator - y};
}

}  // namespace

ImageHeader ImageDecoder::open(std::span<const std::uint8_t> bytes) {
  bytes_ = bytes;
  const auto format = image_format_of(bytes);
  if (!format) throw_unknown_format(bytes);
  format_ = *format;
  return format_ == ImageFormat::jpeg ? jpeg_.open(bytes) : read_png_header(bytes, max_pixels_);
}

ImageView ImageDecoder::decode(int channels) {
  if (format_ == ImageFormat::png) return decode_png(bytes_, channels, memory_, max_pixels_);
  return jpeg_.decode(channels, memory_);
}

DecodedPart ImageDecoder::decode(const WantedPart& wanted, int channels) {
  const Rectangle& part = wanted.part;
  if (format_ == ImageFormat::png) {
    return {decode(channels).crop(part), 0, 0, static_cast<double>(part.width), static_cast<double>(part.height)};
  }
  const int denominator = denominator_for(wanted);
  const Rectangle pixels = touched(part, denominator);
  const double scale = 1.0 / denominator;
  return {jpeg_.decode(pixels, denominator, channels, memory_), part.x * scale - pixels.x, part.y * scale - pixels.y,
          part.width * scale, part.height * scale};
}

}  // namespace lockstep::data
