// Writes a data set as TFRecord shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/fields/fields.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"

namespace lockstep::inline v0::data {

class RecordSource;

/// The encoding of features: one value of raw bytes (value / 255 in a sample), floats, or the
/// original JPEG or PNG file. The last one adds the usual features image/format, image/height,
/// image/width, image/channels and, if the class has a name, image/class/text.
enum class FeatureEncoding { bytes, floats, encoded };

/// How to write shards.
struct ShardOptions {
  std::filesystem::path directory;  ///< created if missing
  std::string part = "train";       ///< prefix of the file names: train-00000-of-00004.tfrecord
  int shards = 1;                   ///< number of files, whose sizes differ by at most one record
  Compression compression = Compression::none;        ///< compression of the files
  FeatureEncoding encoding = FeatureEncoding::bytes;  ///< encoding of the samples
  std::string input_feature = "image";                ///< name of the only input's feature
  std::string label_feature = "label";                ///< name of the only label's feature
  /// Seed of a random order of the records; unset: the order of the source.
  std::optional<std::uint64_t> shuffle = {};
  bool overwrite = false;  ///< replace existing shards of this part
};

/// Called repeatedly with the number of records written so far.
using Progress = std::function<void(std::int64_t records)>;

/// Writes all records of `source` to shards whose sizes differ by at most one record, and
/// dataset.json next to them. A label is one integer, the targets of a regression are floats; other
/// tensors are features of the same name. The files are renamed to their final names when all of
/// them are complete, so an earlier failure leaves the directory unchanged. An interruption of the
/// renaming leaves a dataset.json that is marked incomplete, which readers refuse. Removes
/// temporary files of killed conversions. Throws Error (data) if a file cannot be written, and if
/// another part of the directory has other class names; Error (input) if the directory already has
/// shards of this part and `overwrite` is not set.
PartDescription write_shards(const RecordSource& source, const ShardOptions& options,
                             const Progress& progress = {});

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

/// The options of shards.
template <>
struct Fields<data::ShardOptions> {
  using Options = data::ShardOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::part,
            {"part", "",
             "Part of the data set, such as train or test: the name of the shards, and PART in "
             "--data DIRECTORY:PART"},
            {},
            {.value = "train|test"}},
      Field{
          &Options::directory,
          {"output", "", "Directory for the shards and dataset.json; created if it does not exist"},
          {},
          {.value = "DIR"}},
      Field{&Options::shards,
            {"shards", "", "Number of files to write, 1 to 99999"},
            {.min = 1, .max = 99'999}},
      Field{
          &Options::compression,
          {"compression", "",
           "Compression: none, gzip or zlib; compressed files are decompressed when read, to disk "
           "if large"}},
      Field{&Options::shuffle,
            {"seed", "", "Seed of the order in which the images are written (default: 1)"}},
      Field{&Options::overwrite, {"overwrite", "", "Replace existing shards of this part"}}};
};

}  // namespace lockstep::inline v0
