// From bytes to the floats that networks take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/pixels.h"
#include "lockstep/data/image/image.h"

namespace lockstep::data {

/// Mean and deviation of the training images of CIFAR-10 and of ImageNet, as the field has them.
inline constexpr ChannelNormalization kCifar10Normalization = {
    .channels = 3, .mean = {0.4914f, 0.4822f, 0.4465f}, .deviation = {0.2470f, 0.2435f, 0.2616f}};
/// The same of ImageNet's.
inline constexpr ChannelNormalization kImageNetNormalization = {
    .channels = 3, .mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}};

/// pixels_to_features for all 256 values of each channel beforehand, by the very float operations that it
/// names, in their order: what it looks up has the bits of what it would compute.
class Normalizer {
 public:
  /// `channels` is 1 or 3; `deviation` must be positive.
  Normalizer(const ChannelNormalization& normalization, int channels);

  /// floats[i] from bytes[i], both [pixels, channels]. Spans of one size.
  void normalize(std::span<const std::uint8_t> bytes, std::span<float> floats) const;

  int channels() const { return channels_; }  ///< of each pixel

 private:
  int channels_;
  std::array<std::array<float, 256>, 3> table_;
};

// Where the last step over an image writes its rows.

/// An output image [height, width, channels] as bytes or as normalized floats, written row by row from the first. Every
/// operation writes bytes, so both outputs hold the same pixels, and what makes floats of them finds the row in the
/// nearest cache instead of passing over the image again.
class PixelSink {
 public:
  /// Bytes, where they are to lie. Spans of [height, width, channels].
  PixelSink(std::span<std::uint8_t> output, int height, int width, int channels);
  /// Floats; `normalizer` stays with the caller, and so does `row_memory`, which is kept from image to image.
  PixelSink(std::span<float> output, int height, int width, const Normalizer& normalizer,
            std::vector<std::uint8_t>& row_memory);

  /// Pixels of `hole` get `fill` (per channel) instead of what is written.
  void cut_out(const Rectangle& hole, const std::array<std::uint8_t, 3>& fill);

  int height() const { return height_; }      ///< rows wanted
  int width() const { return width_; }        ///< pixels of a row
  int channels() const { return channels_; }  ///< values of a pixel

  /// Where to write row `y`: width x channels bytes. The next call must be finish_row of the same row.
  std::uint8_t* begin_row(int y);
  void finish_row(int y);  ///< says that the memory of row `y` is filled

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

/// Copies `part` of `image`, mirrored where `flip` says so, to the sink. The part has the sink's size and may reach
/// beyond the image: what lies there is black. The image has the sink's channels.
void copy_part(const ImageView& image, const Rectangle& part, bool flip, PixelSink& sink);

}  // namespace lockstep::data
