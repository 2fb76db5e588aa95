// Images as bytes: views of pixels, and memory that holds them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/pixels.h"

namespace lockstep::inline v0::data {

/// A rectangle in pixels. `x` counts columns from the left, `y` rows from the top.
struct Rectangle {
  int x = 0;       ///< left edge, in pixels
  int y = 0;       ///< top edge, in pixels
  int width = 0;   ///< in pixels
  int height = 0;  ///< in pixels

  bool operator==(const Rectangle&) const = default;
};

/// A non-owning view of pixels [height, width, channels]. Rows are contiguous and `stride` bytes
/// apart, so a crop is also a view. `Byte` is std::uint8_t, or const std::uint8_t for read-only
/// pixels.
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
  /// Required of allocators; there is no state to copy.
  template <typename Other>
  explicit AlignedTo32(const AlignedTo32<Other>&) {}

  /// Uninitialized memory for `count` values; throws std::bad_alloc.
  Value* allocate(std::size_t count) {
    return static_cast<Value*>(::operator new(count * sizeof(Value), kAlignment));
  }
  /// Releases memory from allocate().
  void deallocate(Value* memory, std::size_t) { ::operator delete(memory, kAlignment); }
  bool operator==(const AlignedTo32&) const = default;
};

/// Reusable memory for images. It grows to the size of the largest image and is kept.
///
/// Pixels start between two multiples of 32. libjpeg-turbo writes rows that start at a multiple of
/// 32 past the caches, and decoding a small image whose pixels are read immediately then takes 1.6
/// times as long.
class Image {
 public:
  /// Resizes to [height, width, channels]. The pixels are undefined until they are written.
  void reshape(int height, int width, int channels);

  /// A writable view of the pixels.
  ImageSpan span() {
    return {pixels(), height_, width_, channels_, std::ptrdiff_t{width_} * channels_};
  }
  /// A read-only view of the pixels.
  ImageView view() const {
    return {pixels(), height_, width_, channels_, std::ptrdiff_t{width_} * channels_};
  }

  int height() const { return height_; }      ///< in pixels
  int width() const { return width_; }        ///< in pixels
  int channels() const { return channels_; }  ///< values per pixel: 1 or 3

 private:
  static constexpr std::size_t kBefore = 16;  // unused bytes before the pixels

  std::uint8_t* pixels() { return memory_.empty() ? nullptr : memory_.data() + kBefore; }
  const std::uint8_t* pixels() const {
    return memory_.empty() ? nullptr : memory_.data() + kBefore;
  }

  std::vector<std::uint8_t, AlignedTo32<std::uint8_t>> memory_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 0;
};

/// A lookup table of pixels_to_features for all 256 values of each channel. It is computed with the
/// same float operations in the same order, so its results have the same bits.
class Normalizer {
 public:
  /// `channels` is 1 or 3; `deviation` must be positive.
  Normalizer(const ChannelNormalization& normalization, int channels);

  /// Writes floats[i] from bytes[i], both [pixels, channels], spans of the same size.
  void normalize(std::span<const std::uint8_t> bytes, std::span<float> floats) const;

  int channels() const { return channels_; }  ///< channels per pixel

 private:
  int channels_;
  std::array<std::array<float, 256>, 3> table_;
};

// The destination of the last step over an image.

/// An output image [height, width, channels] as bytes or as normalized floats, written row by row
/// from the top. Every operation writes bytes, so both outputs hold the same pixels. A row is
/// converted to floats while it is still in the nearest cache, without another pass over the image.
class PixelSink {
 public:
  /// Byte output of [height, width, channels].
  PixelSink(std::span<std::uint8_t> output, int height, int width, int channels);
  /// Float output. `normalizer` and `row_memory` stay owned by the caller; `row_memory` is reused
  /// between images.
  PixelSink(std::span<float> output, int height, int width, const Normalizer& normalizer,
            std::vector<std::uint8_t>& row_memory);

  /// Pixels of `hole` are set to `fill` (per channel) instead of the written values.
  void cut_out(const Rectangle& hole, const std::array<std::uint8_t, 3>& fill);

  int height() const { return height_; }      ///< rows
  int width() const { return width_; }        ///< pixels per row
  int channels() const { return channels_; }  ///< values per pixel

  /// The buffer for row `y`: width x channels bytes. The next call must be finish_row() for the
  /// same row.
  std::uint8_t* begin_row(int y);
  void finish_row(int y);  ///< completes row `y`

 private:
  std::size_t row_size() const {
    return static_cast<std::size_t>(width_) * static_cast<std::size_t>(channels_);
  }

  std::span<std::uint8_t> bytes_;
  std::span<float> floats_;
  const Normalizer* normalizer_ = nullptr;
  int height_;
  int width_;
  int channels_;
  Rectangle hole_;
  std::array<std::uint8_t, 3> fill_{};
};

// Crop, padding and flip in one copy.

/// Copies `part` of `image` to the sink, mirrored if `flip`. The part has the sink's size and may
/// extend beyond the image, where it is filled with black. The image has the sink's channels.
void copy_part(const ImageView& image, const Rectangle& part, bool flip, PixelSink& sink);

}  // namespace lockstep::inline v0::data
