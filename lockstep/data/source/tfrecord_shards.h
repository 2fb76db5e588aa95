// Writes a data set as TFRecord shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/record/compression.h"
#include "lockstep/data/sample.h"
#include "lockstep/data/source/dataset_json.h"

namespace lockstep::data {

/// How features are written: as one value of raw bytes (what is value / 255 in a sample), as floats, or, of images that
/// are JPEG or PNG files, as these files with what others look for beside them: image/format, image/height,
/// image/width, image/channels and, where the class has a name, image/class/text.
enum class FeatureEncoding { bytes, floats, encoded };

/// How shards are written.
struct ShardOptions {
  std::filesystem::path directory;                    ///< made where it is missing
  std::string part = "train";                         ///< names the files: train-00000-of-00004.tfrecord
  int shards = 1;                                     ///< files, of sizes that differ by one record at most
  Compression compression = Compression::none;        ///< of the files
  FeatureEncoding encoding = FeatureEncoding::bytes;  ///< of each sample within its Example
  std::string input_feature = "image";                ///< its name
  std::string label_feature = "label";                ///< its name
  /// Records in an order of their own that depends on this seed; else in the order of the source.
  std::optional<std::uint64_t> shuffle = {};
  bool overwrite = false;  ///< replace the shards of this part that are there
};

/// Called now and then with the number of records written so far.
using Progress = std::function<void(std::int64_t records)>;

/// Writes all records of `source` (which has classes), cut into shards whose sizes differ by one at most, and
/// dataset.json beside them. The files get their names when all of them are whole, so a failure before that leaves the
/// directory as it was; one that interrupts the renaming leaves a dataset.json that says so, which readers refuse.
/// Removes the temporary files of conversions that were killed. Throws Error (data) where something cannot be written;
/// and where another part of the directory has other names of classes; Error (input) where the directory has shards of
/// this part already and `overwrite` is not set.
PartDescription write_shards(const RecordSource& source, const ShardOptions& options, const Progress& progress = {});

}  // namespace lockstep::data
