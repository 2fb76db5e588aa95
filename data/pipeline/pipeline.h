// The steps between records and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
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
  bool shuffled = false;
  std::int64_t global_batch = 0;
  int prefetch = 0;  ///< global batches read ahead; 0: as a stream's options say

  /// Whether samples can stay bytes until they are on the model's device, which normalizes them at most once.
  bool gives_pixels() const;
  /// What is to be done to them there.
  device::ChannelNormalization pixel_normalization() const;

  /// Whether samples are the records of the source as they are.
  bool is_plain() const { return !images && maps.empty() && normalization.channels == 0; }
  /// ", images cifar10-train, 2 maps, normalized ...": what is done to the records of the source.
  std::string preparation() const;

  /// Global batches of an epoch; the last one may be smaller.
  std::int64_t steps_per_epoch() const { return source->size() == 0 ? 0 : 1 + (source->size() - 1) / global_batch; }
};

}  // namespace lockstep::data
