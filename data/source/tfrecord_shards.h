// Writes a data set as TFRecord shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/record/compression.h"
#include "data/sample.h"
#include "data/source/dataset_json.h"

namespace lockstep::data {

/// How features are written: as one value of raw bytes (what is value / 255 in a sample), or as floats.
enum class FeatureEncoding { bytes, floats };

struct ShardOptions {
  std::filesystem::path directory;  ///< made where it is missing
  std::string part = "train";       ///< names the files: train-00000-of-00004.tfrecord
  int shards = 1;
  Compression compression = Compression::none;
  FeatureEncoding encoding = FeatureEncoding::bytes;
  std::string input_feature = "image";
  std::string label_feature = "label";
  bool overwrite = false;  ///< replace the shards of this part that are there
};

/// Called now and then with the number of records written so far.
using Progress = std::function<void(std::int64_t records)>;

/// Writes all records of `source` (which has classes) in order, cut into shards whose sizes differ by one at most, and
/// dataset.json beside them. The files get their names when all of them are whole, and dataset.json comes last, so a
/// failure leaves the directory as it was. Throws Error (data) where something cannot be written; Error (input) where
/// the directory has shards of this part already and `overwrite` is not set.
PartDescription write_shards(const RecordSource& source, const ShardOptions& options, const Progress& progress = {});

}  // namespace lockstep::data
