// Options for reading files: TFRecord files and CSV tables, alone or as ranks of a job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/data/order/record_split.h"
#include "lockstep/data/sample/sample_spec.h"
#include "lockstep/data/table/schema.h"

namespace lockstep::inline v0::data {

/// The ranks of a job that open the same data set together, from strategy::index_exchange(). On
/// opening, each TFRecord file is read by one rank; tables, texts, IDX files and decompressed files
/// exist once per node. Opening is then collective: all must open the same files with the same
/// options, and an error of one rank is thrown on all. Default: this process alone.
struct IndexExchange {
  int members = 1;  ///< number of processes
  int member = 0;   ///< number of this process
  /// Returns the bytes of all members, in member order. Collective. Not called after opening.
  std::function<std::vector<std::string>(const std::string& own)> all_gather = {};
  int node = 0;  ///< number of this process's host
};

/// The features of a TFRecord data set and their meaning. Empty or 0 means: use `dataset.json` next
/// to the shards, otherwise the first record (`image/encoded` or `image`; `image/class/label` or
/// `label`), and one scan of the labels for the number of classes.
struct TFRecordOptions {
  /// The Example feature that contains the sample; empty: as described above.
  std::string input_feature = {};
  std::string label_feature = {};  ///< the Example feature that contains the label
  /// Several inputs and targets, each from the feature of its name, instead of these two, the shape
  /// and the number of classes; weights are in the feature sample_weight.
  SampleSpec tensors = {};
  /// [H, W, C], or the extents of another kind of sample.
  std::vector<std::int64_t> input_shape = {};
  std::int64_t classes = 0;  ///< number of classes; 0: as described above
  /// Classes are matched by name, not by number (Dataset::with_classes), so that records whose
  /// classes have names, and image folders, may have any number of them: `classes` is not required.
  bool classes_by_name = false;
  /// Reads only the inputs, for predictions: the records may lack the label and the weight.
  bool without_labels = false;
  std::string trained_input = {};  ///< input feature in training, tried before the usual names
  /// Input shape in training, for raw bytes of this size, and for images in separate files.
  std::vector<std::int64_t> trained_shape = {};
  /// Directory of record indexes, and of decompressed files while they are read. Empty: indexes are
  /// next to each file, or in memory if that directory is not writable, and decompressed files in
  /// $TMPDIR, /var/tmp or /tmp.
  std::filesystem::path index_dir = {};
  /// Use a damaged or truncated file up to its first damage; see SourceInfo::damage.
  bool skip_damage = false;
  IndexExchange exchange = {};  ///< the ranks that open the data set together
};

/// Whether a table starts with the names of its columns. automatic: detected from its first lines.
enum class CsvHeader { automatic, yes, no };

/// How the characters of a table are stored.
enum class TextEncoding { utf8, latin1 };

/// A column is identified by its name in the header, or by its number from 1.
struct CsvOptions {
  CsvHeader header = CsvHeader::automatic;     ///< whether the first line is a header
  char separator = ',';                        ///< between the columns: ',', ';', '|' or a tab
  TextEncoding encoding = TextEncoding::utf8;  ///< also that of `like`
  std::string label = {};  ///< class column; empty: the last column, unless there are targets
  std::vector<std::string> targets = {};  ///< columns of regression targets, instead of a label
  /// Feature columns, in this order; empty: all remaining columns.
  std::vector<std::string> columns = {};
  std::vector<std::string> leave_out = {};  ///< columns to ignore
  /// Columns of words: each value is a class, or a separate 0/1 feature.
  std::vector<std::string> categorical = {};
  /// Whether the other columns of features may be words or dates as well as numbers, and are left
  /// out if they are identifiers (source/csv/csv_inference.h). False: they are numbers, none of
  /// which may be missing by default.
  bool infers = true;
  std::vector<std::string> keep = {};  ///< features even if they are identifiers
  /// Names of classes that mean a missing label in other tables (is_missing): NA, None. The labels
  /// are then words.
  std::vector<std::string> label_words = {};
  /// Adds a feature for unknown values to each categorical column; default: only to those that are
  /// not named in `categorical`.
  std::optional<bool> unknown_column = {};
  /// The training table that defines values and classes; empty: this table itself. It is read with
  /// the same options, but with the separator of its first line.
  std::filesystem::path like = {};
  /// Scale of the feature columns that are numbers; empty: ColumnScale::standard.
  std::optional<ColumnScale> scale = {};
  /// Missing numbers of feature columns; default: their mean, or an error without `infers` and for
  /// numbers as stored (ColumnScale::none).
  std::optional<MissingValues> missing = {};
  /// JSON file that describes features (docs/data.md). Columns that it neither names nor drops are
  /// features as usual.
  std::filesystem::path features = {};
  /// Number of consecutive rows whose features are a sample, [T, F]; 0: one row, [F]. This and the
  /// next four are the TableWindow of the schema.
  std::int64_t window = 0;
  /// Rows from the last row of the features to that of the label or of the first targets; default:
  /// 1. Above 0, the targets are features as well, unless `columns` leaves them out.
  std::optional<std::int64_t> horizon = {};
  std::optional<std::int64_t> steps = {};   ///< rows of targets, one after another; default: 1
  std::optional<std::int64_t> stride = {};  ///< rows from one window to the next; default: 1
  /// The column that names the series of a row; no window has rows of two series. Rows of a series
  /// are in file order.
  std::string series = {};
  /// The schema of a training table, as SourceInfo::table and checkpoints have it. It defines the
  /// meaning of the columns: the only options above that are used are header, separator, label,
  /// targets and stride. If that table had a header, columns are found by their names, in any
  /// order; else by their position.
  std::shared_ptr<const TableSchema> schema = {};
  /// With a schema or `like`: whether the table may lack the label or targets, which are not read;
  /// the last window then ends at the last row.
  bool may_lack_labels = false;
  /// With a schema: a row that cannot be used is an error when it is read, not when the table is
  /// opened. Not with windows, whose samples have several rows.
  bool keeps_bad_rows = false;
  /// Reads only the rows of one part of a split. Without a schema, the statistics, words and
  /// classes are those of this part. Not with windows, which share rows.
  std::optional<SplitSelection> split = {};
  IndexExchange exchange = {};  ///< the ranks that open the table together
};

/// A table and its options.
struct CsvSpec {
  std::filesystem::path file;  ///< path of the table, or a pattern of files with the same columns
  CsvOptions options = {};     ///< how to read it

  /// Parses "FILE", or "FILE:label=species,categorical=color+shape": the fields of CsvOptions, with
  /// `drop` for leave_out, `sep` for the separator, `unknown=column` and `label-words=NA+None`.
  /// Throws Error (input) at `where`.
  static CsvSpec parse(std::string_view text, const std::string& where);
};

}  // namespace lockstep::inline v0::data

namespace lockstep::inline v0 {

/// The options of TFRecord files that a command has.
template <>
struct Fields<data::TFRecordOptions> {
  using Options = data::TFRecordOptions;  ///< the struct
  /// Throws Error (input) unless the value is "28x28x1" or the like.
  static void parse_shape(Options& options, std::string_view name,
                          std::span<const std::string> values);
  /// The values that parse_shape() reads.
  static std::vector<std::string> print_shape(const Options& options);
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::index_dir,
            {"index_dir", "Data",
             "Directory for the indexes of TFRecord files (default: next to each file)"},
            {},
            {.value = "DIR"}},
      Field{&Options::input_feature,
            {"input_feature", "Data",
             "Name of the tf.train.Example feature that is the input (default: from "
             "dataset.json or the first record)"},
            {},
            {.value = "NAME"}},
      Field{&Options::label_feature,
            {"label_feature", "Data",
             "Name of the feature that is the label (default: from dataset.json or the "
             "first record)"},
            {},
            {.value = "NAME"}},
      TextField<Options>{
          {"input_shape", "Data",
           "Shape of a sample: HxWxC, or a number of values (default: from dataset.json "
           "or the first record)"},
          parse_shape,
          print_shape,
          {.value = "HxWxC"}},
      Field{&Options::classes,
            {"classes", "Data",
             "Number of classes; 0: that of dataset.json or of a scan of the labels"},
            {.min = 0}}};
};

}  // namespace lockstep::inline v0
