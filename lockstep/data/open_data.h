// Opens the data set of a `--data` option.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/base/log.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/text/text_schema.h"

namespace lockstep::inline v0::data {

/// Settings that the text of `--data` does not contain.
struct DataSpecOptions {
  /// First directory to search for `fashion-mnist`; empty: only `system_dir`.
  std::filesystem::path data_dir = {};
  std::string part = "train";     ///< the part, train or test, if the text does not name one
  TFRecordOptions tfrecord = {};  ///< options for TFRecord files; `exchange` also for others
  std::uint64_t seed = 1;         ///< seed of synthetic samples
  /// The schema of the training table, for tables without `like`; null: a table has its own.
  std::shared_ptr<const TableSchema> table = {};
  /// The schema of the training text: tokenizer, length and documents of texts without their own.
  std::shared_ptr<const TextSchema> text = {};
  /// The part to open of data that are split; the whole of `part` by default.
  std::optional<SplitSelection> split = {};
  /// Whether a table is read as that of a training. False: as stored, by default with
  /// ColumnScale::none and without CsvOptions::infers.
  bool scales_tables = true;
  /// For predictions: labels are not read (TFRecord, IDX, images), or may be missing (tables).
  bool may_lack_labels = false;
  std::filesystem::path features = {};  ///< CsvOptions::features of tables that state none
  /// Logs which file is read if a text is ambiguous; null: no log.
  std::shared_ptr<Logger> log = {};
  /// Where system packages install data sets.
  std::filesystem::path system_dir = "/usr/share/datasets";
};
/// Opens the data set of a `--data` option, whose forms data_usage() lists. `fashion-mnist` is
/// searched in `data_dir`, then in the directory of Debian's package; the options of a table are
/// those of CsvSpec::parse, and source/memory_source.h describes synthetic samples. `part` is used
/// if the text does not name one: idx, fashion-mnist and synthetic data may have the value `train`
/// or `test`, and DIRECTORY:PART names a part in a dataset.json. Throws Error (input) for a text
/// that is none of these, Error (data) if files are missing or damaged; both state what to do.
Dataset open_data(const std::string& spec, const DataSpecOptions& options = {});

/// The files from which open_data() would read records, in record order, without reading them; for
/// a directory of images, its class folders. Empty for synthetic data. Includes a file that a
/// dataset.json lists even if it does not exist. Throws Error as open_data() does for an invalid
/// text, and for a glob, a set or a directory without files.
std::vector<std::filesystem::path> data_files(const std::string& spec,
                                              const DataSpecOptions& options = {});

/// The forms of a `--data` option, separated by semicolons, for the help and messages.
std::string data_usage();

/// Whether `spec` begins with the prefix of a format, such as `csv:`, or names a known data set.
bool names_format(const std::string& spec);

/// Whether `spec` is DIRECTORY:PART, with an existing directory that has a dataset.json.
bool names_part(const std::string& spec);

/// Throws Error (input) if `spec`, in which TFRecord files are expected, has the name of a file in
/// another format, such as a.csv. The error states how to write it.
void refuse_other_formats(const std::string& spec);

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

/// The options of a data set that are not part of its name.
template <>
struct Fields<data::DataSpecOptions> {
  using Options = data::DataSpecOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::data_dir,
            {"data_dir", "Data",
             "Directory to search for fashion-mnist before the system's directories"},
            {},
            {.value = "DIR"}},
      Part{&Options::tfrecord}};
};

}  // namespace lockstep::inline v0
