// The steps between records and batches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/sample.h"
#include "device/pixels.h"

namespace lockstep::data {

/// What to do with the records of a source. A value; the source is shared.
struct Pipeline {
  std::shared_ptr<const RecordSource> source;
  std::vector<SampleMap> maps;                      ///< applied in this order
  device::ChannelNormalization normalization = {};  ///< after the maps
  bool shuffled = false;
  std::int64_t global_batch = 0;

  /// Global batches of an epoch; the last one may be smaller.
  std::int64_t steps_per_epoch() const { return (source->size() + global_batch - 1) / global_batch; }
};

}  // namespace lockstep::data
