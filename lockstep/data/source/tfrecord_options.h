// How the records of TFRecord files are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

/// Where a TFRecord data set's features are and what they mean. Empty or 0 means: take it from `dataset.json` beside
/// the shards, else from the first record (`image/encoded` or `image`; `image/class/label` or `label`), classes from
/// one scan of the labels.
struct TFRecordOptions {
  std::string input_feature = {};  ///< the feature of each Example with the sample; empty: as described above
  std::string label_feature = {};  ///< the feature with the label
  std::vector<std::int64_t> input_shape = {};  ///< [H, W, C], or the sizes of another kind of sample
  std::int64_t classes = 0;                    ///< number of classes; 0: found as described above
  std::filesystem::path index_dir = {};  ///< where record indexes are kept; empty: beside each file (or in memory where
                                         ///< that cannot be written)
  bool skip_damage = false;  ///< of a file with a damaged length or end, the records before; see RecordSource::damage
};

}  // namespace lockstep::data
