// lockstep data inspect, verify and index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/source/file_options.h"

namespace lockstep::inline v0::apps {

/// The TFRecord files that `arguments` name: files, globs, and directories with a dataset.json, of
/// all parts or of one (DIRECTORY:PART). Throws Error (data) for an argument that matches nothing,
/// Error (input) for the name of a file in another format.
std::vector<std::filesystem::path> files_of(const std::vector<std::string>& arguments);

/// Whether `argument` is a data set in the syntax of --data rather than TFRecord files: a table,
/// folders of images, IDX files, or synthetic data.
bool is_data_source(const std::string& argument);

struct VerifyOptions {
  std::vector<std::string> files;  ///< TFRecord files, or data sets in the syntax of --data
  data::TFRecordOptions tfrecord;  ///< the features and the shape of TFRecord files, as in train
  /// Also decode every JPEG and PNG image of TFRecord files; images in folders are always decoded.
  bool images = false;
};

/// Reads every record of TFRecord files and of data sets in the syntax of --data, and finds faults
/// that would stop a training. Prints one line per file and per fault on standard output (at most
/// 20 per file for records and fields that are readable but do not match), and throws Error (data)
/// at the end if there was a fault. Reading of a TFRecord file continues after a record with
/// damaged data, but not after a damaged length.
void verify_data(const VerifyOptions& options);

struct IndexOptions {
  std::vector<std::string> files;   ///< TFRecord files, globs or directories, see files_of()
  std::filesystem::path index_dir;  ///< directory for the indexes; empty: next to each file
};

/// Writes the index of each file that has no valid one, and prints its path. Throws Error (data).
void index_data(const IndexOptions& options);

struct InspectOptions {
  std::vector<std::string> files;  ///< TFRecord files, or data sets in the syntax of --data
  std::int64_t records = 0;        ///< maximum number of records per file; 0 for all
  std::string label_feature;       ///< feature whose values are counted; empty: the usual names
};

/// Prints the files, a table of the features, and the number of records per label on standard
/// output. Throws Error (data).
void inspect_data(const InspectOptions& options);

/// Calls inspect(table) if the table can be read. Otherwise prints its columns and the error that
/// would stop a training; if the first row may be a header, prints the columns of both
/// interpretations. Throws Error for options that do not match, and for files that are not tables.
void inspect_table(data::CsvSpec table, const std::function<void(const data::Dataset&)>& inspect);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
struct Fields<apps::VerifyOptions> {
  using Options = apps::VerifyOptions;
  static constexpr std::tuple list{
      Field{&Options::images,
            {"images", "", "Also decode every JPEG and PNG image of TFRecord files"}},
      Part{&Options::tfrecord}};
};

template <>
struct Fields<apps::IndexOptions> {
  static constexpr std::tuple list{
      Field{&apps::IndexOptions::index_dir,
            {"index_dir", "", "Directory for the indexes (default: next to each file)"},
            {},
            {.value = "DIR"}}};
};

template <>
struct Fields<apps::InspectOptions> {
  using Options = apps::InspectOptions;
  static constexpr std::tuple list{
      Field{&Options::records,
            {"records", "", "Maximum number of records to read from each file; 0 for all"},
            {.min = 0}},
      Field{&Options::label_feature,
            {"label_feature", "",
             "Feature whose values are counted (default: image/class/label or label)"},
            {},
            {.value = "NAME"}}};
};

}  // namespace lockstep::inline v0
