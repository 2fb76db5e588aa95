#include "lockstep/data/image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"

namespace lockstep::data {

ImageView view_of(std::span<const std::uint8_t> pixels, int height, int width, int channels) {
  const std::ptrdiff_t stride = std::ptrdiff_t{width} * channels;
  LOCKSTEP_CHECK_OP(pixels.size(), ==, static_cast<std::size_t>(stride * height));
  return {pixels.data(), height, width, channels, stride};
}

void Image::reshape(int height, int width, int channels) {
  const std::size_t bytes = kBefore + static_cast<std::size_t>(height) * width * channels;
  if (memory_.size() < bytes) memory_.resize(bytes);
  height_ = height;
  width_ = width;
  channels_ = channels;
}

namespace {

constexpr std::array<std::uint8_t, 3> kJpegBegins = {0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPngBegins = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool begins_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> beginning) {
  return bytes.size() >= beginning.size() && std::ranges::equal(bytes.first(beginning.size()), beginning);
}

}  // namespace

std::optional<ImageFormat> image_format_of(std::span<const std::uint8_t> bytes) {
  if (begins_with(bytes, kJpegBegins)) return ImageFormat::jpeg;
  if (begins_with(bytes, kPngBegins)) return ImageFormat::png;
  return std::nullopt;
}

std::string_view image_format_name(ImageFormat format) { return format == ImageFormat::jpeg ? "jpeg" : "png"; }

void throw_damaged_image(std::string_view format, std::string_view said) {
  throw Error(ErrorCategory::data, fmt::format("{} image", format), "expected an intact image",
              fmt::format("the decoder reports: {}", said));
}

void check_image_size(std::string_view format, std::int64_t height, std::int64_t width, std::int64_t max_pixels) {
  if (height * width <= max_pixels) return;
  throw Error(ErrorCategory::data, fmt::format("{} image", format),
              fmt::format("expected at most {} pixels", max_pixels),
              fmt::format("the header announces {} x {}", height, width));
}

}  // namespace lockstep::data
