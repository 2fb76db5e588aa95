// A recipe for images as the reader of a batch applies it, sample after sample.
#pragma once

#include <optional>

#include "lockstep/data/image/transform.h"
#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample.h"

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

// A record with all that a pipeline does to it.

/// For one thread.
class SampleReader {
 public:
  /// `pipeline` outlives this object.
  explicit SampleReader(const Pipeline& pipeline);
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  /// Reads the source's record `key.record_id` into `sample`, whose spans have the sizes of the pipeline's spec, and
  /// does to it what the pipeline says. Throws what the source and the maps throw.
  void read(const SampleKey& key, Sample& sample);

 private:
  const Pipeline& pipeline_;
  std::optional<RecipeStep> recipe_;
};

}  // namespace lockstep::data
