#include "data/image/copy_part.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/error.h"

namespace lockstep::data {
namespace {

/// `count` pixels of three bytes, the last first. Moves four bytes at a time: the fourth falls on the next pixel, which
/// then overwrites it. At the ends there is no fourth, to be read or to be overwritten.
void mirror_colors(const std::uint8_t* from, int count, std::uint8_t* to) {
  from += std::ptrdiff_t{count - 1} * 3;
  std::memcpy(to, from, 3);
  for (int x = 1; x + 1 < count; ++x) {
    to += 3;
    from -= 3;
    std::memcpy(to, from, 4);
  }
  if (count > 1) std::memcpy(to + 3, from - 3, 3);
}

void copy_pixels(const std::uint8_t* from, int count, int channels, bool flip, std::uint8_t* to) {
  if (!flip) {
    std::copy_n(from, std::ptrdiff_t{count} * channels, to);
  } else if (channels == 3) {
    mirror_colors(from, count, to);
  } else {
    std::reverse_copy(from, from + count, to);
  }
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
