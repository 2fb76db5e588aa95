// Options for reading TFRecord files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

/// The features of a TFRecord data set and their meaning. Empty or 0 means: use `dataset.json` next to the shards,
/// otherwise the first record (`image/encoded` or `image`; `image/class/label` or `label`), and one scan of the labels
/// for the number of classes.
struct TFRecordOptions {
  std::string input_feature = {};  ///< the Example feature that contains the sample; empty: as described above
  std::string label_feature = {};  ///< the Example feature that contains the label
  std::vector<std::int64_t> input_shape = {};  ///< [H, W, C], or the extents of another kind of sample
  std::int64_t classes = 0;                    ///< number of classes; 0: as described above
  /// Directory of record indexes. Empty: next to each file, or in memory if that directory is not writable.
  std::filesystem::path index_dir = {};
  bool skip_damage = false;  ///< use a damaged or truncated file up to the damage; see RecordSource::damage
};

}  // namespace lockstep::data
