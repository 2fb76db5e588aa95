// Where the last step over an image writes its rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/image/image.h"
#include "data/image/normalization.h"

namespace lockstep::data {

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

}  // namespace lockstep::data
