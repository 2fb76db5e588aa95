// Converts the text of a table to the numbers that are stored for its rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/source/csv/csv_layout.h"
#include "lockstep/data/table/column_counts.h"
#include "lockstep/data/table/csv_rows.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/table/word_table.h"

namespace lockstep::inline v0::data {

/// The stored rows of a table.
struct TableRows {
  /// [rows, features]: the number, or the number of the category; for a multi-hot feature the
  /// number of a set of categories.
  std::vector<float> values;
  std::vector<float> targets;         ///< [rows, targets]
  std::vector<std::int32_t> labels;   ///< [rows], if there is a label
  std::vector<std::int32_t> ends;     ///< [sets]: end of each in `members`
  std::vector<std::int32_t> members;  ///< categories of all sets, unique within each
  /// [series]: one past the last row of each; a table without series is one series.
  std::vector<std::int64_t> series;
  /// Problems of unusable rows, whose values above are undefined.
  std::map<std::int64_t, ErrorMessage> problems;
};

/// Calls use(word) for the words of a multi-hot field.
template <typename Use>
void for_words(char separator, std::string_view field, Use use) {
  while (!field.empty()) {
    const std::size_t end = std::min(field.find(separator), field.size());
    if (end > 0) use(field.substr(0, end));
    field.remove_prefix(std::min(end + 1, field.size()));
  }
}

/// Reads a table in one pass and learns its schema.
class CsvReader {
 public:
  /// Maximum number of values of a categorical column.
  static constexpr std::size_t kMaxValues = ColumnCounts::kMaxValues;
  /// Maximum number of different fields of a multi-hot column: sets are stored as floats, which
  /// have all integers up to here.
  static constexpr std::size_t kMaxSets = std::size_t{1} << 24;

  using Report = std::function<void(const Error&)>;

  /// The columns of the table `file`, and what they mean.
  struct Meaning {
    CsvLayout layout = {};
    TableSchema schema = {};                    ///< missing parts are learned, unless it is known
    bool is_known = false;                      ///< the schema is that of a training table
    std::string origin = {};                    ///< origin of the schema, for messages
    std::string file;                           ///< for messages
    char separator = ',';                       ///< between columns
    std::vector<std::string> label_words = {};  ///< CsvOptions::label_words
    std::vector<TableFile> files = {};          ///< TableText::files; empty: one file
  };

  /// `text` and `meaning` must outlive this object. With a report, every Error about a field is
  /// reported instead of thrown, and no row is kept. With `keeps_bad_rows`, it is stored instead of
  /// the row: TableRows::problems.
  CsvReader(std::string_view text, Meaning& meaning, const Report* report,
            bool keeps_bad_rows = false);

  /// Divides the rows by their class, or all alike if there is no label, so that read() skips
  /// those of other parts. Throws Error (data) for a part without rows.
  SplitInfo select(const SplitSelection& selection);

  /// Reads all rows and completes the schema. Throws Error (data) as the constructor of CsvSource.
  TableRows read();
  std::int64_t records() const { return records_; }      ///< rows read
  std::int64_t rows_seen() const { return rows_seen_; }  ///< those, and rows of other parts

 private:
  /// The words of a feature.
  struct Vocabulary {
    WordTable words;                       // if it is categorical
    bool is_learned = true;                // else new words are added
    bool groups_rare = false;              // a word of one row counts as unknown
    std::vector<std::int64_t> rows = {};   // [words]: rows that have it, with `groups_rare`
    WordTable fields = {};                 // if it is multi-hot
    std::vector<std::int32_t> sets = {};   // [fields]
    std::vector<std::int32_t> ranks = {};  // [words]: in alphabetical order, once learned
  };

  CsvRows rows() const;
  /// Whether the row that follows `rows_seen_` rows belongs to another part.
  bool skips_row() const {
    const auto row = static_cast<std::size_t>(rows_seen_);
    return row < parts_.size() && parts_[row] != part_;
  }
  template <typename Use>
  void attempt(Use use) const;
  /// Throws Error (data) for rows that do not fit in memory.
  void check_memory() const;
  void index_columns();
  /// Labels are class numbers if the first one that is not missing is a number.
  void find_kind_of_labels();
  /// Whether a label that is a number may be a class name.
  bool may_be_any_word() const;
  /// Whether the label is missing and not the name of a class.
  bool lacks_label(std::string_view field) const;
  /// Whether add_plain() can read rows; sets `plain_` then.
  bool can_be_plain();
  void add_rows();
  /// Adds a row of plain numbers and words; false, without adding it, if it needs add_row().
  bool add_plain(std::span<const double> numbers, std::span<const std::string_view> words);
  void add_target(double number);
  void add_row(const CsvRows& rows);
  /// Adds the row, or its problem.
  void add_row_or_problem(const CsvRows& rows);
  void add_feature(const CsvRows& rows, std::size_t index);
  double number(const CsvRows& rows, std::size_t column, const TableFeature& feature);
  /// The stored value of the words of a feature; -1 if a word has no category.
  double value_of_words(std::size_t index, std::span<const std::string_view> fields);
  std::int32_t category(std::size_t index, std::string_view word);
  std::int32_t set_of_categories(std::size_t index, std::string_view field);
  std::int32_t class_number(const CsvRows& rows);
  /// The number of the class; -1 if there is none.
  std::int32_t find_class(std::string_view word);
  std::int32_t class_of(double number) const;
  /// The number of the row's series. Throws Error (data) if it has none.
  std::int32_t series_of(const CsvRows& rows);
  void store_rows();
  /// Moves the rows of each series together, in the order in which the series begin.
  void gather_series();
  /// Numbers the learned words in alphabetical order.
  void sort_words();
  /// Finds the columns of the training table that are TableCounts::distinct.
  void find_distinct();
  /// Counts the stored values.
  void count_values();
  /// The categories of a set.
  std::span<const std::int32_t> members_of(std::size_t set) const;
  [[noreturn]] void fail_category(const CsvRows& rows, std::size_t index);
  [[noreturn]] void fail_limit(const CsvRows& rows, std::size_t column,
                               std::string_view word) const;
  /// Fails for a field that is not a number.
  void fail_word(const CsvRows& rows, std::size_t column);
  /// Fails for a field that is not a date.
  [[noreturn]] void fail_date(const CsvRows& rows, std::size_t column) const;
  /// Fails for a label that is not a class.
  void fail_class(const CsvRows& rows, std::size_t column);
  void fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected);
  /// The expected value, for a column of words or dates that is read as numbers.
  std::string words_text(std::size_t column, std::string_view field);
  /// Counts of the column in all rows, for an error. Reads the table once more.
  const ColumnCounts& counts(std::size_t column);

  std::string_view text_;
  Meaning& meaning_;
  const Report* report_;
  bool keeps_bad_rows_;
  std::vector<SplitPart> parts_;  // [rows]; empty: all rows are read
  SplitPart part_ = SplitPart::training;
  std::int64_t rows_seen_ = 0;
  std::vector<std::vector<std::size_t>> columns_;  // [features]
  std::vector<Vocabulary> vocabularies_;           // [features]
  std::vector<bool> requires_value_;               // [columns]
  std::vector<PlainField> plain_;                  // [columns]
  std::vector<std::size_t> optional_;              // features whose plain numbers may be missing
  WordTable classes_;
  WordTable series_;
  std::vector<std::int32_t> series_of_rows_;  // [rows], if the table has series
  bool learns_classes_ = false;
  std::int64_t records_ = 0;
  std::vector<double> raw_;          // [rows, features], before they are stored
  std::vector<double> raw_targets_;  // [rows, targets], unless the schema is known
  std::vector<std::size_t> owners_;  // [sets]: their features
  TableRows rows_;
  bool missing_is_reported_ = false;
  std::set<std::size_t> reported_words_;  // columns of words, each reported once
  std::vector<ColumnCounts> counts_;      // [columns], once an error needs them
};

}  // namespace lockstep::inline v0::data
