// Application of an image recipe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/data/image/image.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// Per-thread state kept between images: decoders and memory.
class ImageScratch {
 public:
  ImageScratch();
  ~ImageScratch();
  ImageScratch(const ImageScratch&) = delete;
  ImageScratch& operator=(const ImageScratch&) = delete;

 private:
  friend class ImageTransform;
  struct State;
  std::unique_ptr<State> state_;
};

/// Applies an ImageRecipe. Immutable and shared by threads; each thread has its own ImageScratch.
/// Pixels depend only on the image and the key, not on thread, rank or machine; floats are the
/// normalized bytes.
///
/// Errors (data) describe the problem but do not identify the image: the caller knows the file and
/// the record.
class ImageTransform {
 public:
  /// Throws Error (input) as recipe.check() does.
  explicit ImageTransform(ImageRecipe recipe);

  const ImageRecipe& recipe() const { return recipe_; }  ///< the applied recipe
  /// height x width x channels of the output.
  std::size_t output_size() const;

  /// Decodes `encoded`, a JPEG or PNG image, and writes bytes [height, width, channels].
  void apply(std::span<const std::uint8_t> encoded, const SampleKey& key,
             std::span<std::uint8_t> output, ImageScratch& scratch) const;
  /// Decodes `encoded` and writes normalized floats.
  void apply(std::span<const std::uint8_t> encoded, const SampleKey& key, std::span<float> output,
             ImageScratch& scratch) const;

  /// Processes a decoded image, which must have the recipe's channels.
  void apply(const ImageView& image, const SampleKey& key, std::span<std::uint8_t> output,
             ImageScratch& scratch) const;
  /// Processes a decoded image and writes normalized floats.
  void apply(const ImageView& image, const SampleKey& key, std::span<float> output,
             ImageScratch& scratch) const;

  /// Writes to the first input of `sample`, with memory of this thread: bytes if it has pixels,
  /// otherwise normalized floats. `image` is encoded or decoded, as above.
  template <typename Source>
  void apply(const Source& image, const SampleKey& key, const Sample& sample) const {
    if (sample.pixels().empty())
      apply(image, key, sample.features(), scratch_of_this_thread());
    else
      apply(image, key, sample.pixels(), scratch_of_this_thread());
  }

 private:
  /// One per thread is enough if sources contain recipes themselves: the inner recipe is finished
  /// when the outer one starts.
  static ImageScratch& scratch_of_this_thread();
  template <typename Source, typename Value>
  void apply_to(const Source& image, const SampleKey& key, std::span<Value> output,
                ImageScratch& scratch) const;

  ImageRecipe recipe_;
  Normalizer normalizer_;
  std::array<std::uint8_t, 3> mean_;
};

}  // namespace lockstep::inline v0::data
