// The rows of a comma-separated text.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/source/csv_options.h"

namespace lockstep::data {

/// Cuts a text into rows and fields (RFC 4180): a quoted field may hold commas, line breaks and doubled quotes. Blanks
/// around fields, empty lines and a byte order mark are passed over.
class CsvRows {
 public:
  /// `text` outlives this object; `file` is for messages.
  CsvRows(std::string_view text, std::string file);

  /// Goes to the next row; false after the last. Throws Error (data) with file, line and column for quotes that are not
  /// where they can be.
  bool next();
  /// Of the row, without quotes; valid until next().
  const std::vector<std::string_view>& fields() const { return fields_; }
  /// Of the file, from 1: where the row begins.
  std::int64_t line() const { return line_; }

  /// Throws the Error (data) about a field of this row; `column` is from 0.
  [[noreturn]] void fail(std::size_t column, std::string_view needed, std::string_view given) const;

 private:
  std::string_view take_quoted();
  std::string_view take_plain();
  bool at_end_of_line() const { return rest_.empty() || rest_.front() == '\n'; }
  void skip_blanks();

  std::string file_;
  std::string_view rest_;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // fields with doubled quotes, which the text does not hold as they are
};

// What the columns of one table mean.

/// The number that a field is, and nothing else.
template <typename Number>
std::optional<Number> csv_number(std::string_view field);

/// Where a table's features, label and targets are: its first rows, seen with the options.
struct CsvLayout {
  bool has_header = false;             ///< the first row is none of the records
  std::vector<std::string> names;      ///< of all columns: the header's, or their numbers from 1
  std::vector<std::size_t> features;   ///< columns, from 0
  std::vector<std::size_t> targets;    ///< of a regression
  std::optional<std::size_t> label;    ///< where there are no targets
  std::vector<bool> is_categorical;    ///< of all columns
  std::vector<std::string> classes;    ///< names in a header "120,4,setosa,versicolor,virginica"
  std::int64_t announced_records = 0;  ///< by such a header; 0: none is

  /// Throws Error (data) for a file of which it cannot tell, Error (input) for options that do not fit it.
  static CsvLayout of(std::string_view text, const std::string& file, const CsvOptions& options);
};

}  // namespace lockstep::data
