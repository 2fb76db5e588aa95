// The steps between records and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/image/transform.h"
#include "data/sample.h"
#include "device/pixels.h"

namespace lockstep::data {

/// What to do with the records of a source. A value; the source is shared.
struct Pipeline {
  std::shared_ptr<const RecordSource> source;
  SampleSpec spec;                                  ///< of the samples: the source's, or what a recipe makes of images
  std::shared_ptr<const ImageTransform> images;     ///< null: images are taken as they are stored
  std::vector<SampleMap> maps;                      ///< after it, applied in this order
  device::ChannelNormalization normalization = {};  ///< after the maps
  double mixup_alpha = 0;                           ///< after all of these, where above 0
  bool shuffled = false;
  std::int64_t global_batch = 0;

  /// Whether samples can stay bytes until they are on the model's device, which normalizes them at most once.
  bool gives_pixels() const { return source->has_images() && maps.empty() && (!images || normalization.channels == 0); }
  /// What is to be done to them there.
  device::ChannelNormalization pixel_normalization() const {
    return images ? images->recipe().normalization : normalization;
  }

  /// Global batches of an epoch; the last one may be smaller.
  std::int64_t steps_per_epoch() const { return source->size() == 0 ? 0 : 1 + (source->size() - 1) / global_batch; }
};

}  // namespace lockstep::data
