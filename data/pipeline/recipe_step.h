// A recipe for images as the reader of a batch applies it, sample after sample.
#pragma once

#include "data/image/transform.h"
#include "data/sample.h"

namespace lockstep::data {

/// For one thread.
class RecipeStep final : public ImageStep {
 public:
  /// `transform` and `scratch` outlive this object; `stored` are images that are not encoded, [H, W, C].
  RecipeStep(const ImageTransform& transform, const SampleSpec& stored, ImageScratch& scratch)
      : transform_(transform), stored_(stored), scratch_(scratch) {}

  /// What the next sample's choices depend on.
  void set_key(const SampleKey& key) { key_ = key; }

  void take_stored(std::span<const std::uint8_t> pixels, Sample& sample) override;
  void take_encoded(std::span<const std::uint8_t> file, Sample& sample) override;

 private:
  template <typename Image>
  void take(const Image& image, Sample& sample);

  const ImageTransform& transform_;
  const SampleSpec& stored_;
  ImageScratch& scratch_;
  SampleKey key_;
};

}  // namespace lockstep::data
