// Output of pixels as bytes or as normalized floats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/pixels.h"
#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// The usual mean and deviation of the CIFAR-10 training images.
inline constexpr ChannelNormalization kCifar10Normalization = {
    .channels = 3, .mean = {0.4914f, 0.4822f, 0.4465f}, .deviation = {0.2470f, 0.2435f, 0.2616f}};
/// The usual mean and deviation of the ImageNet training images.
inline constexpr ChannelNormalization kImageNetNormalization = {
    .channels = 3, .mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}};

/// A lookup table of pixels_to_features for all 256 values of each channel. It is computed with the same float
/// operations in the same order, so its results have the same bits.
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

/// An output image [height, width, channels] as bytes or as normalized floats, written row by row from the top. Every
/// operation writes bytes, so both outputs hold the same pixels. A row is converted to floats while it is still in the
/// nearest cache, without another pass over the image.
class PixelSink {
 public:
  /// Byte output of [height, width, channels].
  PixelSink(std::span<std::uint8_t> output, int height, int width, int channels);
  /// Float output. `normalizer` and `row_memory` stay owned by the caller; `row_memory` is reused between images.
  PixelSink(std::span<float> output, int height, int width, const Normalizer& normalizer,
            std::vector<std::uint8_t>& row_memory);

  /// Pixels of `hole` are set to `fill` (per channel) instead of the written values.
  void cut_out(const Rectangle& hole, const std::array<std::uint8_t, 3>& fill);

  int height() const { return height_; }      ///< rows
  int width() const { return width_; }        ///< pixels per row
  int channels() const { return channels_; }  ///< values per pixel

  /// The buffer for row `y`: width x channels bytes. The next call must be finish_row() for the same row.
  std::uint8_t* begin_row(int y);
  void finish_row(int y);  ///< completes row `y`

 private:
  std::size_t row_size() const { return static_cast<std::size_t>(width_) * channels_; }

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

/// Copies `part` of `image` to the sink, mirrored if `flip`. The part has the sink's size and may extend beyond the
/// image, where it is filled with black. The image has the sink's channels.
void copy_part(const ImageView& image, const Rectangle& part, bool flip, PixelSink& sink);

}  // namespace lockstep::data
