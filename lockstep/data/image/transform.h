// A recipe at work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/image/pixel_sink.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/image/resize.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// What a thread keeps from one image to the next: decoders and memory.
struct ImageScratch {
  ImageDecoder decoder{kMaxPixels};  ///< keeps its state from image to image
  Resizer resizer;                   ///< keeps its tables from size to size
  Image pixels;                      ///< the resized image
  std::vector<std::uint8_t> row;     ///< one row of it
};

/// Applies an ImageRecipe. Immutable, so that threads share it; each brings an ImageScratch of its own. The same key
/// gives the same pixels on every thread, rank and machine, and floats that are the normalized bytes.
///
/// Errors (data) say what is wrong with the image and not which it is: the caller knows file and record.
class ImageTransform {
 public:
  /// Throws Error (input) where `recipe.check()` does.
  explicit ImageTransform(ImageRecipe recipe);

  const ImageRecipe& recipe() const { return recipe_; }  ///< what is done to each image
  /// height x width x channels of the output.
  std::size_t output_size() const;

  /// Decodes `encoded`, a JPEG or PNG image, and writes [height, width, channels] bytes, or normalized floats.
  void apply(std::span<const std::uint8_t> encoded, const SampleKey& key, std::span<std::uint8_t> output,
             ImageScratch& scratch) const;
  /// Decodes a JPEG or PNG image and writes it as floats. Throws RecordError where it is damaged.
  void apply(std::span<const std::uint8_t> encoded, const SampleKey& key, std::span<float> output,
             ImageScratch& scratch) const;

  /// The same for an image that is decoded already and has the recipe's channels.
  void apply(const ImageView& image, const SampleKey& key, std::span<std::uint8_t> output, ImageScratch& scratch) const;
  /// The same of an image that is decoded already.
  void apply(const ImageView& image, const SampleKey& key, std::span<float> output, ImageScratch& scratch) const;

 private:
  template <typename Source, typename Value>
  void apply_to(const Source& image, const SampleKey& key, std::span<Value> output, ImageScratch& scratch) const;

  ImageRecipe recipe_;
  Normalizer normalizer_;
  std::array<std::uint8_t, 3> mean_;
};

}  // namespace lockstep::data
