// What all formats of encoded images have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep::data {

/// What image files are read.
enum class ImageFormat { jpeg, png };

/// By the first bytes; nothing where they are those of no format that can be decoded.
std::optional<ImageFormat> image_format_of(std::span<const std::uint8_t> bytes);

/// "jpeg" or "png".
std::string_view image_format_name(ImageFormat format);

/// What an image's header says, before a pixel is decoded.
struct ImageHeader {
  int height = 0;    ///< in pixels
  int width = 0;     ///< in pixels
  int channels = 0;  ///< as decoded when nobody asks for another number: 1 (gray) or 3 (RGB)

  bool operator==(const ImageHeader&) const = default;
};

/// The most pixels an image may have, 67 million. A damaged header can announce any size; this bounds the memory that
/// each thread allocates for it: three bytes a pixel, and four more for a progressive JPEG.
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;

/// Throws the Error (data) for an image of `format` ("JPEG") that its library refuses, with what the library said.
[[noreturn]] void throw_damaged_image(std::string_view format, std::string_view said);

/// Throws Error (data) for more than `max_pixels`.
void check_image_size(std::string_view format, std::int64_t height, std::int64_t width, std::int64_t max_pixels);

}  // namespace lockstep::data
