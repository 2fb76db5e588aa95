// Random choices about one sample.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/base/random.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// The sequence of random numbers for one `purpose` ("flip") of one sample: a pure function of purpose, seed, epoch and
/// record id, so the same on every rank and thread, and untouched by what else is chosen for the sample.
class SampleRandom {
 public:
  /// `purpose` is copied into the key of the generator, not kept.
  SampleRandom(std::string_view purpose, const SampleKey& key);

  std::uint32_t word();  ///< 32 random bits
  /// In [0, 1), 32 bits of it.
  double unit() { return word() * 0x1p-32; }
  /// In [low, high).
  double between(double low, double high);
  /// 0 .. count-1, each as likely to within count / 2^32.
  int below(int count) { return static_cast<int>((std::uint64_t{word()} * static_cast<std::uint32_t>(count)) >> 32); }

 private:
  Philox generator_;
  std::uint64_t record_id_;
  std::uint64_t blocks_ = 0;
  std::array<std::uint32_t, 4> words_{};
  std::size_t used_ = 4;
};

// Random changes of color.

/// How strongly colors may change: each factor is uniform in [max(0, 1 - strength), 1 + strength]. 0 changes nothing.
struct ColorJitterRange {
  double brightness = 0;  ///< largest change of the factor, as a part of 1
  double contrast = 0;    ///< likewise
  double saturation = 0;  ///< likewise

  /// Whether anything is to be changed.
  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0; }
  bool operator==(const ColorJitterRange&) const = default;
};

/// Factors for one image; 1 changes nothing. Multiples of 2^-10, so that the arithmetic is of integers and the same on
/// every machine.
struct ColorJitter {
  double brightness = 1;  ///< factor of all values
  double contrast = 1;    ///< factor of the distance from the image's mean gray
  double saturation = 1;  ///< factor of the distance from each pixel's gray
};

/// Factors within `range`, chosen by the sample's key.
ColorJitter choose_color_jitter(const SampleKey& key, const ColorJitterRange& range);

/// Changes `image` in place: brightness multiplies pixels, contrast their distance from the image's mean luma,
/// saturation their distance from their own luma (torchvision's definitions, in this order), each rounded and cut to
/// 0 .. 255. Saturation leaves an image of one channel as it is.
void jitter_colors(const ColorJitter& jitter, const ImageSpan& image);

// Which part of an image a sample shows.

/// A part of `height` x `width` at a random place of the image with `padding` pixels around it; may reach beyond the
/// image by that much. Throws Error (data) where the padded image is smaller.
Rectangle choose_padded_crop(const SampleKey& key, int image_height, int image_width, int padding, int height,
                             int width);

/// Where `part` pixels in the middle of `whole` begin. Where that is half a pixel, at the even one of both sides, as
/// torchvision's CenterCrop.
std::int64_t center_offset(std::int64_t whole, std::int64_t part);

/// What part of an image a random resized crop may take.
struct ResizedCropRange {
  std::array<double, 2> area = {0.08, 1.0};          ///< as a share of the image's
  std::array<double, 2> ratio = {3.0 / 4, 4.0 / 3};  ///< width / height

  bool operator==(const ResizedCropRange&) const = default;
};

/// A part of random area, uniform in `range.area`, and random ratio, uniform in the logarithm, at a random place within
/// the image (Szegedy et al., "Going deeper with convolutions", 2015). As torchvision's RandomResizedCrop: ten tries to
/// find one that fits, then the largest in the middle whose ratio is within the range.
Rectangle choose_resized_crop(const SampleKey& key, int image_height, int image_width, const ResizedCropRange& range);

/// True for `probability` of the samples.
bool choose_flip(const SampleKey& key, double probability = 0.5);

/// A square of `size` around a random pixel, as much of it as lies within the image (DeVries and Taylor, "Improved
/// regularization of convolutional neural networks with cutout", 2017).
Rectangle choose_cutout(const SampleKey& key, int image_height, int image_width, int size);

}  // namespace lockstep::data
