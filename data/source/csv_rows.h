// The rows of a comma-separated text.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace lockstep::data
