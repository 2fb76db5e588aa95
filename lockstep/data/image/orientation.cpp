#include "lockstep/data/image/orientation.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::inline v0::data {
namespace {

using FileBytes = std::span<const std::uint8_t>;
using namespace std::string_view_literals;

bool begins_with(FileBytes bytes, std::string_view text) {
  return bytes.size() >= text.size() &&
         std::equal(text.begin(), text.end(), bytes.begin(),
                    [](char c, std::uint8_t byte) { return static_cast<std::uint8_t>(c) == byte; });
}

/// Numbers of a TIFF structure, in its byte order. Reading past the end is nullopt.
struct Tiff {
  FileBytes bytes;
  bool is_big_endian;

  std::optional<std::size_t> number(std::size_t offset, std::size_t size) const {
    if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
    std::size_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | bytes[offset + (is_big_endian ? i : size - 1 - i)];
    return value;
  }
};

/// The number of the orientation in a block of EXIF, which is a TIFF file; 1 without any.
int orientation_in(FileBytes exif) {
  constexpr std::size_t kOrientation = 0x0112;
  constexpr std::size_t kShort = 3;  // two bytes, at the beginning of the entry's value
  constexpr std::size_t kEntryBytes = 12;
  const bool is_big_endian = begins_with(exif, "MM\0*"sv);
  if (!is_big_endian && !begins_with(exif, "II*\0"sv)) return 1;
  const Tiff tiff{exif, is_big_endian};
  const auto directory = tiff.number(4, 4);
  const auto entries = directory ? tiff.number(*directory, 2) : std::nullopt;
  if (!entries) return 1;
  for (std::size_t i = 0; i < *entries; ++i) {
    const std::size_t entry = *directory + 2 + i * kEntryBytes;
    const auto value = tiff.number(entry + 8, 2);
    if (!tiff.number(entry + 8, 4)) return 1;  // the directory is cut short
    if (tiff.number(entry, 2) == kOrientation)
      return tiff.number(entry + 2, 2) == kShort ? static_cast<int>(*value) : 1;
  }
  return 1;
}

}  // namespace

Orientation Orientation::of_exif(int number) {
  constexpr std::array<Orientation, 9> kOrientations = {{
      {},
      {},
      {.flips_x = true},
      {.flips_x = true, .flips_y = true},
      {.flips_y = true},
      {.swaps = true},
      {.swaps = true, .flips_y = true},
      {.swaps = true, .flips_x = true, .flips_y = true},
      {.swaps = true, .flips_x = true},
  }};
  return number < 1 || number > 8 ? Orientation() : kOrientations[static_cast<std::size_t>(number)];
}

Orientation Orientation::of_jpeg(std::span<const std::uint8_t> bytes) {
  constexpr std::uint8_t kMarker = 0xff;
  constexpr std::uint8_t kFirstWithoutLength = 0xd0;  // restart markers, beginning, end
  constexpr std::uint8_t kLastWithoutLength = 0xd9;
  constexpr std::uint8_t kScan = 0xda;  // pixels follow
  constexpr std::uint8_t kApplication1 = 0xe1;
  constexpr std::string_view kExif = "Exif\0\0"sv;
  std::size_t at = 2;  // after the marker of the beginning
  while (at + 4 <= bytes.size() && bytes[at] == kMarker) {
    const std::uint8_t kind = bytes[at + 1];
    if (kind == kMarker) {  // padding before a marker
      ++at;
      continue;
    }
    if (kind == kScan || (kind >= kFirstWithoutLength && kind <= kLastWithoutLength)) return {};
    const std::size_t length = std::size_t{bytes[at + 2]} << 8 | bytes[at + 3];
    if (length < 2 || length > bytes.size() - at - 2) return {};
    const FileBytes segment = bytes.subspan(at + 4, length - 2);
    if (kind == kApplication1 && begins_with(segment, kExif))
      return of_exif(orientation_in(segment.subspan(kExif.size())));
    at += 2 + length;
  }
  return {};
}

Rectangle Orientation::stored(const Rectangle& part, int width, int height) const {
  Rectangle turned = swaps ? Rectangle{part.y, part.x, part.height, part.width} : part;
  if (flips_x) turned.x = width - turned.x - turned.width;
  if (flips_y) turned.y = height - turned.y - turned.height;
  return turned;
}

ImageView Orientation::turn(const ImageView& stored, Image& memory) const {
  memory.reshape(swaps ? stored.width : stored.height, swaps ? stored.height : stored.width,
                 stored.channels);
  const ImageSpan upright = memory.span();
  const std::ptrdiff_t column = flips_x ? -stored.channels : stored.channels;
  const std::ptrdiff_t row = flips_y ? -stored.stride : stored.stride;
  const std::uint8_t* const first =
      stored.at(flips_x ? stored.width - 1 : 0, flips_y ? stored.height - 1 : 0);
  for (int y = 0; y < upright.height; ++y) {
    std::uint8_t* to = upright.row(y);
    for (int x = 0; x < upright.width; ++x) {
      const std::uint8_t* const from =
          first + (swaps ? y * column + x * row : x * column + y * row);
      for (int channel = 0; channel < stored.channels; ++channel) *to++ = from[channel];
    }
  }
  return memory.view();
}

}  // namespace lockstep::inline v0::data
