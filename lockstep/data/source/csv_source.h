// CSV tables, such as Fisher's Iris.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/base/system/shared_segment.h"
#include "lockstep/data/sample.h"
#include "lockstep/data/source/csv_layout.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/schema.h"

namespace lockstep::data {

struct NodeData;

/// A comma-separated file (RFC 4180; or with another separator), kept in memory, once per node if
/// ranks open it together (CsvOptions::exchange). By default, the last column is the label and the
/// others are features, [F]. Labels are class numbers from 0, or words, which are numbered in
/// alphabetical order regardless of row order. A categorical column is one-hot encoded: one feature
/// per value, in the same order. Numbers are standardized by the mean
/// and the deviation of the table, or as CsvOptions::scale says. Features are in the order of their
/// columns. Categories whose output is CategoryOutput::index are further inputs, int32, with the
/// names of their columns. All this is the table's schema, which another table is read with
/// (CsvOptions::schema).
///
/// A first row is a header if it has words where the other rows have numbers. A header as in
/// TensorFlow's Iris files, `120,4,setosa,versicolor,virginica`, gives the number of records, the
/// number of features and the class names.
class CsvSource final : public RecordSource {
 public:
  /// Maximum number of values of a categorical column.
  static constexpr std::size_t kMaxValues = 10'000;

  /// Throws Error (data) with file, line and column if a number is required and the field is not a
  /// finite number, for a label that is not a class, for a value that the table of `options.like`
  /// does not contain, and for a row whose number of columns differs from the first row; also for a
  /// file without rows. Throws Error (input) for options that do not match the file.
  explicit CsvSource(const std::filesystem::path& file, const CsvOptions& options = {});

  /// Calls report(error) for every problem of the table for which the constructor would throw, at
  /// most one per field, in the order of the rows; but once for all missing values, and once for a
  /// column that is words. After a
  /// misplaced quote, or if the columns cannot be determined, nothing more is read. Returns the
  /// number of rows without the header.
  static std::int64_t find_problems(const std::filesystem::path& file, const CsvOptions& options,
                                    const std::function<void(const Error&)>& report);

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return records_; }
  void read(std::int64_t record_id, Sample& sample) const override;
  /// The path; also that no record has class 0, if the labels are numbers, and the preparation.
  std::string description() const override {
    return file_.string() + label_text_ + schema_.preparation();
  }
  std::string preparation() const override { return schema_.preparation(); }
  std::vector<std::string> class_names() const override { return schema_.class_names; }
  bool counts_classes() const override { return schema_.class_names.empty() && !is_known_; }
  /// "width", or "color=red" for a value of a categorical column; [F].
  std::vector<std::string> feature_names() const override;
  std::vector<std::string> target_names() const override { return schema_.targets; }
  std::shared_ptr<const TableSchema> table() const override { return table_; }

  /// Whether this table alone determines the numbers of its categorical values, or how its columns
  /// are scaled, so that another table would be read differently.
  bool is_self_taught() const { return is_self_taught_; }

 private:
  using Report = std::function<void(const Error&)>;

  CsvSource(const std::filesystem::path& file, const CsvOptions& options, const Report* report);
  void read_table();
  NodeData data() const;
  void use(const NodeData& data, SharedSegment memory);
  /// Calls use(). With a report, its Error is reported instead of thrown.
  template <typename Use>
  void attempt(Use use) const;
  /// The schema of the training table; nullopt if this is one.
  std::optional<TableSchema> trained_schema();
  /// Completes a features file, or nothing, by the options.
  void describe_columns();
  void learn_vocabulary(CsvRows rows);
  void set_widths();
  void index_words();
  void set_spec();
  void add_rows(CsvRows rows);
  void add_row(const CsvRows& rows);
  void add_feature(const CsvRows& rows, std::size_t index);
  void store_rows();
  void fail_word(const CsvRows& rows, std::size_t column);
  void fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected);
  double number(const CsvRows& rows, std::size_t column, const TableFeature& feature);
  /// What is expected instead of a field that is not a number.
  std::string number_text(const CsvRows& rows, std::size_t column) const;
  double category(const CsvRows& rows, std::size_t index, std::string_view word) const;
  std::int32_t class_number(const CsvRows& rows);
  /// The class of a number; nullopt if it is none.
  std::optional<std::int32_t> class_of(double number) const;

  std::filesystem::path file_;
  CsvOptions options_;
  CsvLayout layout_;
  TableSchema schema_;
  bool is_known_ = false;  // the schema is that of a training table
  std::string origin_;     // of the vocabulary, for messages
  std::shared_ptr<const TableSchema> table_;
  bool is_self_taught_ = false;
  SampleSpec spec_;
  std::vector<std::vector<std::size_t>> sources_;  // [features]: their columns
  std::vector<bool> requires_number_;              // [columns]
  std::vector<std::size_t> stored_widths_;         // [features]
  bool is_stored_as_read_ = false;                 // no feature needs expand()
  std::int64_t records_ = 0;
  std::size_t stride_ = 0;
  std::vector<double> raw_;  // [rows, stride], before they are stored
  // What this process has read of the file, and all rows: here, or in the memory of the node.
  std::vector<float> values_;
  std::vector<float> targets_;
  std::vector<std::int32_t> labels_;
  struct Rows {
    std::span<const float> values;   // [N, stride]
    std::span<const float> targets;  // [N, targets]
    std::span<const std::int32_t> labels;
  } rows_;
  SharedSegment memory_;
  // While the table is read: the numbers of words, by feature, and of classes.
  using Places = std::unordered_map<std::string_view, std::int32_t>;
  std::vector<Places> places_;
  Places class_places_;
  std::string label_text_;
  bool missing_is_reported_ = false;
  std::map<std::size_t, bool> words_are_reported_;  // of columns with words: all of them as one
  const Report* report_ = nullptr;  // only in find_problems(), which drops the samples
};

}  // namespace lockstep::data
