// Images as bytes: where their pixels lie, and memory to keep them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// A part of an image, in pixels. `x` counts columns from the left, `y` rows from the top.
struct Rectangle {
  int x = 0;       ///< left edge, in pixels
  int y = 0;       ///< upper edge, in pixels
  int width = 0;   ///< in pixels
  int height = 0;  ///< in pixels

  bool operator==(const Rectangle&) const = default;
};

/// Pixels [height, width, channels] of somebody else's memory. Rows are contiguous and `stride` bytes apart, so that a
/// crop is a view too. `Byte` is std::uint8_t, or const std::uint8_t for pixels only read.
template <typename Byte>
struct BasicImageView {
  Byte* pixels = nullptr;     ///< of the first row; row-major, channels together
  int height = 0;             ///< in pixels
  int width = 0;              ///< in pixels
  int channels = 0;           ///< 1 or 3
  std::ptrdiff_t stride = 0;  ///< bytes from one row to the next

  Byte* row(int y) const { return pixels + y * stride; }  ///< the first pixel of row `y`
  /// The channels of the pixel in column `x` of row `y`.
  Byte* at(int x, int y) const { return row(y) + std::ptrdiff_t{x} * channels; }

  /// The pixels of `part`, which lies within this view; nothing is copied.
  BasicImageView crop(const Rectangle& part) const {
    return {at(part.x, part.y), part.height, part.width, channels, stride};
  }
};

/// Thousandths of red, green and blue in luma (ITU-R BT.601).
inline constexpr int kLumaThousandths[3] = {299, 587, 114};

using ImageView = BasicImageView<const std::uint8_t>;  ///< Pixels to read, in memory of somebody else.
using ImageSpan = BasicImageView<std::uint8_t>;        ///< Pixels to write, in memory of somebody else.

/// Pixels without gaps of memory that holds [height, width, channels] of them.
ImageView view_of(std::span<const std::uint8_t> pixels, int height, int width, int channels);

/// Memory whose begin is a multiple of 32.
template <typename Value>
struct AlignedTo32 {
  using value_type = Value;                          ///< what an allocator has to name
  static constexpr std::align_val_t kAlignment{32};  ///< of each array, in bytes

  AlignedTo32() = default;
  template <typename Other>
  explicit AlignedTo32(const AlignedTo32<Other>&) {}  ///< as containers make it for other types; it holds nothing

  /// Uninitialized memory for `count` values; throws std::bad_alloc.
  Value* allocate(std::size_t count) { return static_cast<Value*>(::operator new(count * sizeof(Value), kAlignment)); }
  /// Gives back what allocate() gave.
  void deallocate(Value* memory, std::size_t) { ::operator delete(memory, kAlignment); }
  bool operator==(const AlignedTo32&) const = default;
};

/// Memory for one image after another. It grows to the largest of them and is kept.
///
/// Pixels begin between two multiples of 32: rows that begin at one libjpeg-turbo writes past the caches, and a small
/// image then takes 1.6 times as long, its pixels being read at once.
class Image {
 public:
  /// Makes this [height, width, channels]; the pixels are undefined until somebody writes them.
  void reshape(int height, int width, int channels);

  /// The pixels, to write.
  ImageSpan span() { return {pixels(), height_, width_, channels_, std::ptrdiff_t{width_} * channels_}; }
  /// The pixels, to read.
  ImageView view() const { return {pixels(), height_, width_, channels_, std::ptrdiff_t{width_} * channels_}; }

  int height() const { return height_; }      ///< in pixels
  int width() const { return width_; }        ///< in pixels
  int channels() const { return channels_; }  ///< values of a pixel: 1 or 3

 private:
  static constexpr std::size_t kBefore = 16;  // bytes of the memory that are no pixels

  std::uint8_t* pixels() { return memory_.empty() ? nullptr : memory_.data() + kBefore; }
  const std::uint8_t* pixels() const { return memory_.empty() ? nullptr : memory_.data() + kBefore; }

  std::vector<std::uint8_t, AlignedTo32<std::uint8_t>> memory_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
};

// What all formats of encoded images have in common.

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
