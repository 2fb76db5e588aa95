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

/// The processing of a source's records. A value; the source is shared.
struct Pipeline {
  std::shared_ptr<const RecordSource> source;
  /// spec of the samples: the source's, or the output of the image recipe
  SampleSpec spec;
  std::shared_ptr<const ImageTransform> images;  ///< null: images are used as stored
  std::vector<SampleMap> maps;                   ///< applied after `images`, in this order
  ChannelNormalization normalization = {};       ///< applied after the maps
  double mixup_alpha = 0;                        ///< applied last; 0: disabled
  bool shuffled = false;
  std::int64_t global_batch = 0;
  ShardPolicy policy = ShardPolicy::automatic;
  std::optional<std::int64_t> bad_records;  ///< maximum number of replaced bad records; nullopt: the first is an error
  int prefetch = 0;                         ///< prefetched global batches; 0: as in the stream options

  /// Whether samples can stay bytes until they are on the model's device, which then normalizes them.
  bool gives_pixels() const;
  /// The normalization to apply there.
  ChannelNormalization pixel_normalization() const;

  /// Whether samples are the unchanged records of the source.
  bool is_plain() const { return !images && maps.empty() && normalization.channels == 0; }
  /// The processing of the source's records: ", images cifar10-train, 2 maps, normalized ...".
  std::string preparation() const;
};

}  // namespace lockstep::data
