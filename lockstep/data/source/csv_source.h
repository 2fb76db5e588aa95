// Tables, such as Fisher's Iris.
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
#include "lockstep/data/source/csv_options.h"

namespace lockstep::data {

/// What one table's words mean; a table that is like it is read by the same.
struct CsvVocabulary {
  std::vector<std::string> columns;                                     ///< names of those that are features
  std::map<std::string, std::vector<std::string>, std::less<>> values;  ///< of each categorical column, sorted
  std::vector<std::string> class_names;                                 ///< where they are known
  bool labels_are_words = false;                                        ///< those of `class_names`, sorted
  std::int64_t classes = 0;
};

/// A comma-separated file (RFC 4180), kept in memory. Unless the options say otherwise the last column is the label and
/// the others are features, [F]. Labels are class numbers from 0, or words, which become classes in the order of the
/// alphabet, whatever the order of the rows. A categorical column becomes one feature for each of its values, in the
/// same order, of which one is 1. Features are numbered in the order of their columns.
///
/// A first row is a header where it has words and the rows have numbers. A header as that of TensorFlow's Iris files,
/// `120,4,setosa,versicolor,virginica`, tells records, features and the names of classes.
class CsvSource final : public RecordSource {
 public:
  static constexpr std::size_t kMostValues = 10'000;  ///< of a categorical column

  /// Throws Error (data) with file, line and column for anything that is not a finite number where one must be, for a
  /// label that is no class, for a value that the table of `options.like` does not have, for a row with another number
  /// of columns than the first; and for a file without rows. Throws Error (input) for options that do not fit the file.
  explicit CsvSource(const std::filesystem::path& file, const CsvOptions& options = {});

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return records_; }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::string description() const override { return file_.string(); }
  std::vector<std::string> class_names() const override { return vocabulary_.class_names; }

  const CsvVocabulary& vocabulary() const { return vocabulary_; }
  /// Whether words stand for numbers by this table alone, so that in a table of other words they stand for others.
  bool has_words_of_its_own() const;
  /// "width", or "color=red" for a value of a categorical column; [F].
  std::vector<std::string> feature_names() const;

 private:
  void learn_vocabulary(CsvRows rows);
  void take_vocabulary(const CsvVocabulary& known);
  void set_spec();
  void add_row(const CsvRows& rows);
  float number(const CsvRows& rows, std::size_t column) const;
  float value_number(const CsvRows& rows, std::size_t column) const;
  std::int32_t class_number(const CsvRows& rows) const;

  std::filesystem::path file_;
  CsvOptions options_;
  CsvLayout layout_;
  CsvVocabulary vocabulary_;
  SampleSpec spec_;
  std::vector<std::size_t> widths_;  // [columns]: features that each column becomes
  std::int64_t records_ = 0;
  std::vector<float> values_;  // [N, columns]: numbers, and of words their places in the vocabulary
  std::vector<float> targets_;
  std::vector<std::int32_t> labels_;
};

}  // namespace lockstep::data
