// CSV tables, such as Fisher's Iris.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/system/shared_segment.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/csv/csv_reader.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/schema.h"

namespace lockstep::inline v0::data {

struct NodeData;

/// A comma-separated file (RFC 4180; or with another separator), or several with the same columns,
/// some of which may be gzip files, kept in memory, once per node if
/// ranks open it together (CsvOptions::exchange). By default, the last column is the label and the
/// others are features, [F]. Labels are class numbers from 0, or words, which are numbered in
/// alphabetical order regardless of row order. A categorical column is one-hot encoded: one feature
/// per value, in the same order. Numbers are standardized by the mean and the deviation of the
/// table, or scaled as in CsvOptions::scale. Features are in the order of their columns. Categories
/// whose output is CategoryOutput::index are further inputs, int32, with the names of their
/// columns. All this is the table's schema, with which other tables are read (CsvOptions::schema).
/// The description has the path; also that no record has class 0, if the labels are numbers.
///
/// With CsvOptions::window, a sample has the features of T consecutive rows, [T, F], int32 inputs
/// have the shape [T], and the label or the targets are those of later rows: the targets of `steps`
/// rows, one row after another. Record i begins at row i * stride, if there is one series; series
/// follow each other in the order in which they begin.
///
/// A first row is a header if it has words where the other rows have numbers. A header as in
/// TensorFlow's Iris files, `120,4,setosa,versicolor,virginica`, states the number of records, the
/// number of features and the class names.
class CsvSource final : public RecordSource {
 public:
  /// Throws Error (data) with file, line and column if a number is required and the field is not a
  /// finite number, for a label that is not a class, for a value that the table of `options.like`
  /// does not contain, and for a row whose number of columns differs from the first row; also for a
  /// file without rows, or with fewer than a window has. Throws Error (input) for options that do
  /// not match the file.
  explicit CsvSource(const std::filesystem::path& file, const CsvOptions& options = {});

  /// Calls report(error) for every problem of the table for which the constructor would throw, at
  /// most one per field, in the order of the rows; but once for all missing values, and once for a
  /// column that is words. After a
  /// misplaced quote, or if the columns cannot be determined, nothing more is read. Returns the
  /// number of rows without the header.
  static std::int64_t find_problems(const std::filesystem::path& file, const CsvOptions& options,
                                    const std::function<void(const Error&)>& report);

  /// The text of a table, whose rows are those of its records.
  struct Text {
    std::string text = {};
    std::vector<TableFile> files = {};  ///< if there are several
    CsvLayout layout = {};
  };
  /// Throws the errors of the constructor about the header and the options.
  static Text text_of(const std::filesystem::path& file, const CsvOptions& options);

  /// Contents of a table, even if it cannot be read as numbers.
  struct Contents {
    CsvLayout layout = {};
    std::vector<ColumnCounts> columns = {};
    std::int64_t rows = 0;  ///< without the header
  };
  /// Throws the errors of the constructor about the header and the options.
  static Contents contents(const std::filesystem::path& file, const CsvOptions& options);

  void read(std::int64_t record_id, Sample& sample) const override;
  void prefetch(std::int64_t record_id) const override;

  /// Whether this table alone determines the numbers of its categorical values, or how its columns
  /// are scaled, so that another table would be read differently.
  bool infers_schema() const { return infers_schema_; }

 private:
  using Report = CsvReader::Report;

  CsvSource() = default;
  void read_table(const Report* report);
  /// Reads the text of all files; sets files_.
  std::string whole_text();
  void read_text(std::string_view text, const Report* report);
  /// Selects the rows of CsvOptions::split. Throws Error (input) for windows.
  SplitInfo select_part(CsvReader& reader, const TableWindow& window) const;
  NodeData data() const;
  void use(const NodeData& data, SharedSegment memory);
  /// The columns and their known meaning, before the rows are read.
  CsvReader::Meaning meaning_of(std::string_view text);
  /// The schema of the training table and its `origin`; nullopt if this is the training table.
  std::optional<TableSchema> trained_schema(std::string& origin) const;
  /// Completes the schema, from a features file or empty, by the options.
  void describe_columns(CsvReader::Meaning& meaning) const;
  bool has_windows() const { return schema_.window.rows > 0; }
  /// Rows from the first feature row to that of the label or of the first targets.
  std::int64_t target_offset() const {
    return has_windows() ? schema_.window.rows - 1 + schema_.window.horizon : 0;
  }
  /// Number of target rows of a sample.
  std::int64_t target_rows() const { return has_windows() ? schema_.window.steps : 1; }
  /// Throws Error (data) if there is no window.
  void find_windows(std::span<const std::int64_t> series);
  void set_info();
  SampleSpec describe_samples(std::size_t width) const;
  /// "width", or "color=red" for a value of a categorical column; [F], also of windows.
  std::vector<std::string> feature_names() const;
  /// "price"; with several steps "price+1", "price+2", the rows after the last of the features.
  std::vector<std::string> target_names() const;
  /// Writes the features of a row at `position` of the window.
  void read_row(std::size_t row, std::span<float> features, std::size_t position,
                Sample& sample) const;
  /// Writes 1 for each category of a set, else 0.
  void mark_set(std::size_t set, std::span<float> features) const;

  std::filesystem::path file_;
  std::vector<TableFile> files_;  // if there are several
  CsvOptions options_;
  TableSchema schema_;
  bool is_known_ = false;  // the schema is that of a training table
  bool infers_schema_ = false;
  std::int64_t records_ = 0;  // rows
  std::size_t targets_ = 0;
  bool has_label_ = false;
  std::string label_text_;
  std::optional<SplitInfo> split_;

  // Features that are copied together, or one that is expanded.
  struct Piece {
    enum class Form { copied, index, set, expanded };
    Form form = Form::copied;
    std::size_t first = 0;   // first feature
    std::size_t offset = 0;  // position in the sample
    std::size_t width = 1;   // elements in the sample
  };
  static Piece::Form form_of(const TableFeature& feature);
  std::vector<Piece> pieces_;

  TableRows own_;  // rows that this process has read
  // Views of `own_` or of the node's shared memory, as in TableRows.
  struct {
    std::span<const float> values;
    std::span<const float> targets;
    std::span<const std::int32_t> labels;
    std::span<const std::int32_t> ends;
    std::span<const std::int32_t> members;
    std::span<const std::int64_t> series;
  } rows_;
  WindowStarts starts_;
  SharedSegment memory_;
};

}  // namespace lockstep::inline v0::data
