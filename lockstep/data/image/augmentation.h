// Random augmentation of samples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "lockstep/data/image/image.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {

/// The random numbers for one `purpose` ("flip") of one sample: a pure function of purpose, seed,
/// epoch and record id. They are the same on every rank and thread, and independent of the other
/// choices for the sample.
class SampleRandom {
 public:
  /// `purpose` is hashed into the generator's key; no reference is kept.
  SampleRandom(std::string_view purpose, const SampleKey& key);

  std::uint32_t word();  ///< 32 random bits
  /// Uniform in [0, 1), with 32 random bits.
  double unit() { return word() * 0x1p-32; }
  /// Uniform in [low, high).
  double between(double low, double high);
  /// Uniform in 0 .. count-1, up to a bias of count / 2^32.
  int below(int count) {
    return static_cast<int>((std::uint64_t{word()} * static_cast<std::uint32_t>(count)) >> 32);
  }

 private:
  Philox generator_;
  std::uint64_t record_id_;
  std::uint64_t blocks_ = 0;
  std::array<std::uint32_t, 4> words_{};
  std::size_t used_ = 4;
};

// Color jitter.

/// Factors for one image; 1 changes nothing. They are multiples of 2^-10, so the arithmetic uses
/// integers and is identical on every machine.
struct ColorJitter {
  double brightness = 1;  ///< factor on all values
  double contrast = 1;    ///< factor on the distance from the image's mean gray
  double saturation = 1;  ///< factor on the distance from each pixel's gray
};

/// Factors within `range`, chosen by the sample's key.
ColorJitter choose_color_jitter(const SampleKey& key, const ColorJitterRange& range);

/// Changes `image` in place: brightness scales pixels, contrast their distance from the image's
/// mean luma, saturation their distance from their own luma (torchvision's definitions, in this
/// order). Each result is rounded and clamped to 0 .. 255. Saturation does not change a one-channel
/// image.
void jitter_colors(const ColorJitter& jitter, const ImageSpan& image);

// Choice of the crop of an image.

/// A crop of `height` x `width` at a random position of the image padded by `padding` pixels; may
/// extend beyond the image by that much. Throws Error (data) if the padded image is smaller than
/// the crop.
Rectangle choose_padded_crop(const SampleKey& key, int image_height, int image_width, int padding,
                             int height, int width);

/// The offset of `part` pixels centered in `whole`. A half-pixel offset is rounded to the even
/// neighbor, as in torchvision's CenterCrop.
std::int64_t center_offset(std::int64_t whole, std::int64_t part);

/// A crop with a random area, uniform in `range.area`, and a random aspect ratio, uniform in the
/// logarithm, at a random position within the image (Szegedy et al., "Going deeper with
/// convolutions", 2015). As in torchvision's RandomResizedCrop: up to ten tries to find a crop that
/// fits, then the largest centered crop with a ratio in the range.
Rectangle choose_resized_crop(const SampleKey& key, int image_height, int image_width,
                              const ResizedCropRange& range);

/// True for `probability` of the samples.
bool choose_flip(const SampleKey& key, double probability = 0.5);

/// A square of `size` centered at a random pixel, clipped to the image (DeVries and Taylor,
/// "Improved regularization of convolutional neural networks with cutout", 2017).
Rectangle choose_cutout(const SampleKey& key, int image_height, int image_width, int size);

/// For `probability` of the samples, a rectangle of 2 to 33 % of the area with a ratio of 0.3
/// to 3.3 at a random position within the image (Zhong et al., "Random erasing data augmentation",
/// 2020), as torchvision's RandomErasing: up to ten tries to find one that fits, then none.
std::optional<Rectangle> choose_erasing(const SampleKey& key, int image_height, int image_width,
                                        double probability);

}  // namespace lockstep::inline v0::data
