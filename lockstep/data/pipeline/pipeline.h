// The steps between records and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/pixels.h"
#include "lockstep/data/image/transform.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// What to do with the records of a source. A value; the source is shared.
struct Pipeline {
  std::shared_ptr<const RecordSource> source;
  SampleSpec spec;                               ///< of the samples: the source's, or what a recipe makes of images
  std::shared_ptr<const ImageTransform> images;  ///< null: images are taken as they are stored
  std::vector<SampleMap> maps;                   ///< after it, applied in this order
  ChannelNormalization normalization = {};       ///< after the maps
  double mixup_alpha = 0;                        ///< after all of these, where above 0
  bool shuffled = false;
  std::int64_t global_batch = 0;
  ShardPolicy policy = ShardPolicy::automatic;
  std::optional<std::int64_t> bad_records;  ///< that may be replaced by their neighbours; none: the first is an error
  int prefetch = 0;                         ///< global batches read ahead; 0: as a stream's options say

  /// Whether samples can stay bytes until they are on the model's device, which normalizes them at most once.
  bool gives_pixels() const;
  /// What is to be done to them there.
  ChannelNormalization pixel_normalization() const;

  /// Whether samples are the records of the source as they are.
  bool is_plain() const { return !images && maps.empty() && normalization.channels == 0; }
  /// ", images cifar10-train, 2 maps, normalized ...": what is done to the records of the source.
  std::string preparation() const;
};

}  // namespace lockstep::data
