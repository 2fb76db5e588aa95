// CSV tables, such as Fisher's Iris.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/sample.h"
#include "lockstep/data/source/csv_layout.h"
#include "lockstep/data/source/file_options.h"

namespace lockstep::data {

/// The values and classes of a table. A table with `like` uses those of another table.
struct CsvVocabulary {
  std::vector<std::string> columns;  ///< names of the feature columns
  /// Sorted values of each categorical column.
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::vector<std::string> class_names;  ///< if known
  bool labels_are_words = false;         ///< the labels are class names, sorted
  std::int64_t classes = 0;
};

/// A comma-separated file (RFC 4180; or with another separator), kept in memory. By default, the
/// last column is the label and the others are features, [F]. Labels are class numbers from 0, or
/// words, which are numbered in alphabetical order regardless of row order. A categorical column is
/// one-hot encoded: one feature per value, in the same order. Features are in the order of their
/// columns.
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
  /// The path; also that no record has class 0, if the labels are numbers.
  std::string description() const override { return file_.string() + label_text_; }
  std::vector<std::string> class_names() const override { return vocabulary_.class_names; }
  bool counts_classes() const override { return vocabulary_.class_names.empty(); }
  /// "width", or "color=red" for a value of a categorical column; [F].
  std::vector<std::string> feature_names() const override;
  std::vector<std::string> target_names() const override;

  const CsvVocabulary& vocabulary() const { return vocabulary_; }
  /// Whether this table alone determines the numbers of its categorical values, so that another
  /// table would number them differently.
  bool has_words_of_its_own() const;

 private:
  using Report = std::function<void(const Error&)>;

  CsvSource(const std::filesystem::path& file, const CsvOptions& options, const Report* report);
  void read_table();
  /// Calls use(). With a report, its Error is reported instead of thrown.
  template <typename Use>
  void attempt(Use use) const;
  void learn_vocabulary(CsvRows rows);
  void take_vocabulary(const CsvVocabulary& known);
  void set_spec();
  void add_row(const CsvRows& rows);
  void fail_word(const CsvRows& rows, std::size_t column);
  void fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected);
  float number(const CsvRows& rows, std::size_t column);
  /// What is expected instead of a field that is not a number.
  std::string number_text(const CsvRows& rows, std::size_t column) const;
  float value_number(const CsvRows& rows, std::size_t column) const;
  std::int32_t class_number(const CsvRows& rows);

  std::filesystem::path file_;
  CsvOptions options_;
  CsvLayout layout_;
  CsvVocabulary vocabulary_;
  SampleSpec spec_;
  std::vector<std::size_t> widths_;  // [columns]: number of features per column
  std::int64_t records_ = 0;
  std::vector<float> values_;  // [N, columns]: numbers; for words, their index in the vocabulary
  std::vector<float> targets_;
  std::vector<std::int32_t> labels_;
  std::string label_text_;
  bool missing_is_reported_ = false;
  std::map<std::size_t, bool> words_are_reported_;  // of columns with words: all of them as one
  const Report* report_ = nullptr;  // only in find_problems(), which drops the samples
};

}  // namespace lockstep::data
