#include "data/image/copy_part.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/error.h"

namespace lockstep::data {
namespace {

void copy_pixels(const std::uint8_t* from, int count, int channels, bool flip, std::uint8_t* to) {
  if (!flip) {
    std::copy_n(from, std::ptrdiff_t{count} * channels, to);
    return;
  }
  for (int x = 0; x < count; ++x)
    std::copy_n(from + std::ptrdiff_t{count - 1 - x} * channels, channels, to + std::ptrdiff_t{x} * channels);
}

}  // namespace

void copy_part(const ImageView& image, const Rectangle& part, bool flip, PixelSink& sink) {
  LOCKSTEP_CHECK_OP(part.width, ==, sink.width());
  LOCKSTEP_CHECK_OP(part.height, ==, sink.height());
  LOCKSTEP_CHECK_OP(image.channels, ==, sink.channels());
  const std::ptrdiff_t channels = image.channels;
  // Columns of the part that the image has, counted in the part.
  const int begin = std::clamp(-part.x, 0, part.width);
  const int end = std::clamp(image.width - part.x, begin, part.width);
  const int first = flip ? part.width - end : begin;
  for (int y = 0; y < part.height; ++y) {
    std::uint8_t* row = sink.begin_row(y);
    const int source = part.y + y;
    const bool inside = source >= 0 && source < image.height && begin < end;
    const std::ptrdiff_t black_until = inside ? first * channels : part.width * channels;
    std::fill_n(row, black_until, std::uint8_t{0});
    if (inside) {
      copy_pixels(image.at(part.x + begin, source), end - begin, image.channels, flip, row + black_until);
      std::fill(row + (first + end - begin) * channels, row + part.width * channels, std::uint8_t{0});
    }
    sink.finish_row(y);
  }
}

}  // namespace lockstep::data
