// Images as bytes: views of pixels, and memory that holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// A rectangle in pixels. `x` counts columns from the left, `y` rows from the top.
struct Rectangle {
  int x = 0;       ///< left edge, in pixels
  int y = 0;       ///< top edge, in pixels
  int width = 0;   ///< in pixels
  int height = 0;  ///< in pixels

  bool operator==(const Rectangle&) const = default;
};

/// A non-owning view of pixels [height, width, channels]. Rows are contiguous and `stride` bytes apart, so a crop is
/// also a view. `Byte` is std::uint8_t, or const std::uint8_t for read-only pixels.
template <typename Byte>
struct BasicImageView {
  Byte* pixels = nullptr;     ///< the first row; row-major, channels interleaved
  int height = 0;             ///< in pixels
  int width = 0;              ///< in pixels
  int channels = 0;           ///< 1 or 3
  std::ptrdiff_t stride = 0;  ///< bytes from one row to the next

  Byte* row(int y) const { return pixels + y * stride; }  ///< the first pixel of row `y`
  /// The channels of the pixel in column `x` of row `y`.
  Byte* at(int x, int y) const { return row(y) + std::ptrdiff_t{x} * channels; }

  /// A view of `part`, which must be inside this view.
  BasicImageView crop(const Rectangle& part) const {
    return {at(part.x, part.y), part.height, part.width, channels, stride};
  }
};

/// Weights of red, green and blue in luma, in thousandths (ITU-R BT.601).
inline constexpr int kLumaThousandths[3] = {299, 587, 114};

using ImageView = BasicImageView<const std::uint8_t>;  ///< A non-owning, read-only view of pixels.
using ImageSpan = BasicImageView<std::uint8_t>;        ///< A non-owning, writable view of pixels.

/// A view of contiguous pixels [height, width, channels].
ImageView view_of(std::span<const std::uint8_t> pixels, int height, int width, int channels);

/// Allocator with an alignment of 32 bytes.
template <typename Value>
struct AlignedTo32 {
  using value_type = Value;                          ///< required of allocators
  static constexpr std::align_val_t kAlignment{32};  ///< alignment of each allocation, in bytes

  AlignedTo32() = default;
  template <typename Other>
  explicit AlignedTo32(const AlignedTo32<Other>&) {}  ///< required of allocators; there is no state to copy

  /// Uninitialized memory for `count` values; throws std::bad_alloc.
  Value* allocate(std::size_t count) { return static_cast<Value*>(::operator new(count * sizeof(Value), kAlignment)); }
  /// Releases memory from allocate().
  void deallocate(Value* memory, std::size_t) { ::operator delete(memory, kAlignment); }
  bool operator==(const AlignedTo32&) const = default;
};

/// Reusable memory for images. It grows to the size of the largest image and is kept.
///
/// Pixels start between two multiples of 32. libjpeg-turbo writes rows that start at a multiple of 32 past the caches,
/// and decoding a small image whose pixels are read immediately then takes 1.6 times as long.
class Image {
 public:
  /// Resizes to [height, width, channels]. The pixels are undefined until they are written.
  void reshape(int height, int width, int channels);

  /// A writable view of the pixels.
  ImageSpan span() { return {pixels(), height_, width_, channels_, std::ptrdiff_t{width_} * channels_}; }
  /// A read-only view of the pixels.
  ImageView view() const { return {pixels(), height_, width_, channels_, std::ptrdiff_t{width_} * channels_}; }

  int height() const { return height_; }      ///< in pixels
  int width() const { return width_; }        ///< in pixels
  int channels() const { return channels_; }  ///< values per pixel: 1 or 3

 private:
  static constexpr std::size_t kBefore = 16;  // unused bytes before the pixels

  std::uint8_t* pixels() { return memory_.empty() ? nullptr : memory_.data() + kBefore; }
  const std::uint8_t* pixels() const { return memory_.empty() ? nullptr : memory_.data() + kBefore; }

  std::vector<std::uint8_t, AlignedTo32<std::uint8_t>> memory_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
};

// Common to all encoded image formats.

/// The supported image file formats.
enum class ImageFormat { jpeg, png };

/// Detects the format from the first bytes; nullopt if it is not a supported format.
std::optional<ImageFormat> image_format_of(std::span<const std::uint8_t> bytes);

/// "jpeg" or "png".
std::string_view image_format_name(ImageFormat format);

/// The size of an image, from its header.
struct ImageHeader {
  int height = 0;    ///< in pixels
  int width = 0;     ///< in pixels
  int channels = 0;  ///< default number of decoded channels: 1 (gray) or 3 (RGB)

  bool operator==(const ImageHeader&) const = default;
};

/// The maximum number of pixels of an image, 67 million. A damaged header can announce any size; this limits the memory
/// that each thread allocates: three bytes per pixel, and four more for a progressive JPEG.
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;

/// Throws the Error (data) for an image of `format` ("JPEG") that its library refuses, with the library's message.
[[noreturn]] void throw_damaged_image(std::string_view format, std::string_view said);

/// Throws Error (data) for more than `max_pixels`.
void check_image_size(std::string_view format, std::int64_t height, std::int64_t width, std::int64_t max_pixels);

}  // namespace lockstep::data
