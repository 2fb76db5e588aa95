#include "lockstep/data/image/decode_image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file_kind.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegBegins = {0xff, 0xd8, 0xff};
constexpr std::array<std::uint8_t, 8> kPngBegins = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> beginning) {
  return bytes.size() >= beginning.size() &&
         std::ranges::equal(bytes.first(beginning.size()), beginning);
}

}  // namespace

std::optional<ImageFormat> image_format_of(std::span<const std::uint8_t> bytes) {
  if (begins_with(bytes, kJpegBegins)) return ImageFormat::jpeg;
  if (begins_with(bytes, kPngBegins)) return ImageFormat::png;
  return std::nullopt;
}

std::string_view unsupported_image_format(std::span<const std::uint8_t> bytes) {
  const FileKind kind = file_kind(text_of(bytes));
  if (kind.content == FileKind::Content::image && !image_format_of(bytes)) return kind.name;
  // "BM" is short, so the size of the file that follows it is compared too.
  if (!text_of(bytes).starts_with("BM") || bytes.size() < 6) return "";
  std::size_t size = 0;
  for (std::size_t i = 6; i-- > 2;) size = size << 8 | bytes[i];
  return size == bytes.size() ? "a BMP image, which is not supported: convert it" : "";
}

std::string_view image_format_name(ImageFormat format) {
  return format == ImageFormat::jpeg ? "jpeg" : "png";
}

void throw_damaged_image(std::string_view format, std::string_view message) {
  throw Error(ErrorCategory::data, fmt::format("{} image", format), "expected an intact image",
              fmt::format("the decoder reports: {}", message));
}

void check_image_size(std::string_view format, std::int64_t height, std::int64_t width,
                      std::int64_t max_pixels) {
  if (height * width <= max_pixels) return;
  throw Error(ErrorCategory::data, fmt::format("{} image", format),
              fmt::format("expected at most {} pixels", max_pixels),
              fmt::format("the header announces {} x {}", height, width));
}

namespace {

constexpr std::size_t kBytesShown = 8;

[[noreturn]] void throw_unknown_format(std::span<const std::uint8_t> bytes) {
  const auto first = bytes.first(std::min<std::size_t>(bytes.size(), kBytesShown));
  std::string_view name = unsupported_image_format(bytes);
  if (name.empty()) name = file_kind(text_of(bytes)).name;
  throw Error(ErrorCategory::data, "image", "expected a JPEG or a PNG image",
              bytes.empty()   ? "there are no bytes"
              : !name.empty() ? fmt::format("it is {}", name)
                              : fmt::format("its {} bytes begin with {:02x}", bytes.size(),
                                            fmt::join(first, " ")));
}

/// The largest reduction that is still at least the wanted size.
int denominator_for(const WantedPart& wanted) {
  int denominator = 8;
  while (denominator > 1 && (wanted.part.width < wanted.width * denominator ||
                             wanted.part.height < wanted.height * denominator))
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

/// The upright form of `stored`, with its pixels in `memory`.
DecodedPart turned(const DecodedPart& stored, const Orientation& orientation, Image& memory) {
  const ImageView& pixels = stored.pixels;
  const double x = orientation.flips_x ? pixels.width - stored.x - stored.width : stored.x;
  const double y = orientation.flips_y ? pixels.height - stored.y - stored.height : stored.y;
  const ImageView upright = orientation.turn(pixels, memory);
  if (orientation.swaps) return {upright, y, x, stored.height, stored.width};
  return {upright, x, y, stored.width, stored.height};
}

}  // namespace

ImageHeader ImageDecoder::open(std::span<const std::uint8_t> bytes, bool turns) {
  bytes_ = bytes;
  const auto format = image_format_of(bytes);
  if (!format) throw_unknown_format(bytes);
  format_ = *format;
  const bool is_jpeg = format_ == ImageFormat::jpeg;
  stored_ = is_jpeg ? jpeg_.open(bytes) : read_png_header(bytes, max_pixels_);
  orientation_ = is_jpeg && turns ? Orientation::of_jpeg(bytes) : Orientation();
  if (!orientation_.swaps) return stored_;
  return {stored_.width, stored_.height, stored_.channels};
}

ImageView ImageDecoder::decode(int channels) {
  if (format_ == ImageFormat::png) return decode_png(bytes_, channels, memory_, max_pixels_);
  const ImageView stored = jpeg_.decode(channels, memory_);
  return orientation_.is_upright() ? stored : orientation_.turn(stored, upright_);
}

DecodedPart ImageDecoder::decode(const WantedPart& upright, int channels) {
  if (format_ == ImageFormat::png)
    return {decode(channels).crop(upright.part), 0, 0, static_cast<double>(upright.part.width),
            static_cast<double>(upright.part.height)};
  const bool swaps = orientation_.swaps;
  const WantedPart wanted = {orientation_.stored(upright.part, stored_.width, stored_.height),
                             swaps ? upright.width : upright.height,
                             swaps ? upright.height : upright.width};
  const Rectangle& part = wanted.part;
  const int denominator = denominator_for(wanted);
  const Rectangle pixels = touched(part, denominator);
  const double scale = 1.0 / denominator;
  const DecodedPart stored = {jpeg_.decode(pixels, denominator, channels, memory_),
                              part.x * scale - pixels.x, part.y * scale - pixels.y,
                              part.width * scale, part.height * scale};
  return orientation_.is_upright() ? stored : turned(stored, orientation_, upright_);
}

}  // namespace lockstep::inline v0::data
