// The data set that the text of a `--data` option names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// What a `--data` option leaves open.
struct DataSpecOptions {
  std::filesystem::path data_dir;  ///< where `fashion-mnist` is looked for first; empty: in Debian's place alone
  std::string part = "train";      ///< which part of it, where the specification does not say: train or test
  TFRecordOptions tfrecord;        ///< for files of TFRecord
  std::uint64_t seed = 1;          ///< of synthetic samples
  std::filesystem::path system_dir = "/usr/share/datasets";  ///< where packages of the system put data sets
};
/// The data set of a `--data` option: a glob of TFRecord files; a directory with a dataset.json, or with
/// folders of images (also as `images:DIRECTORY`);
/// `fashion-mnist[:train|:test]`, looked for in `data_dir`, then where Debian's package puts it;
/// `idx:DIRECTORY[:train|:test]`; `csv:FILE[?label=COLUMN&...]`
/// (CsvOptions::parse); `synthetic:HxWxC:CLASSES:COUNT[:train|:test]`, and
/// `synthetic-images:...` for images of uint8 (source/synthetic_source.h). `part` is used where the text names none.
/// Throws Error (input) for a text that is none of these, Error (data) where files are missing or damaged; both say
/// what to do.
Dataset open_data(const std::string& spec, const DataSpecOptions& options = {});

/// The files that open_data would read records from, without reading any, in the order of their records; of a directory
/// of images the folders of its classes. Empty for what is made up. A file that a dataset.json names is
/// among them whether it is there or not. Throws Error as open_data does for a text that means nothing and for a glob,
/// a set or a directory that has no files.
std::vector<std::filesystem::path> data_files(const std::string& spec, const DataSpecOptions& options = {});

}  // namespace lockstep::data
