// Reads single samples with all processing of a pipeline.
#pragma once

#include <optional>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// Applies an image recipe to one sample after another. Not thread-safe.
class RecipeStep final : public ImageStep {
 public:
  /// `transform` and `scratch` must outlive this object. `stored` is the spec of images that are not encoded, [H, W,
  /// C].
  RecipeStep(const ImageTransform& transform, const SampleSpec& stored, ImageScratch& scratch)
      : transform_(transform), stored_(stored), scratch_(scratch) {}

  /// Sets the key of the next sample's random choices.
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

/// A record with all processing of a pipeline. Not thread-safe.
class SampleReader {
 public:
  /// `pipeline` must outlive this object.
  explicit SampleReader(const Pipeline& pipeline);
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  /// Reads the source's record `key.record_id` into `sample`, whose spans have the sizes of the pipeline's spec, and
  /// applies the pipeline to it. Throws the errors of the source and the maps.
  void read(const SampleKey& key, Sample& sample);

 private:
  const Pipeline& pipeline_;
  std::optional<RecipeStep> recipe_;
};

}  // namespace lockstep::data
