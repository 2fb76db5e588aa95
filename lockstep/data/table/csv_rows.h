// Text with separated columns: rows, fields, numbers.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inline v0::data {

/// Throws Error (data) if `text` is the content of a file in another format, such as gzip or JSON.
void require_table(std::string_view text, const std::string& file);
/// Throws the errors of require_table(), and Error (data) for a text that is not UTF-8 or whose
/// lines end in CR alone; `file` is used in messages.
void check_table_text(std::string_view text, const std::string& file);
/// The separator of the columns of `text`: `expected`, unless the first line has only another one.
char separator_of(std::string_view text, char expected);
/// "a comma", for messages.
std::string separator_text(char separator);

/// What CsvRows::next_plain() expects in a column. An empty number is NaN. A word has neither
/// quotes nor blanks around it.
enum class PlainField : char { number, number_or_empty, word };

/// A file whose rows are a part of a text.
struct TableFile {
  std::string name;        ///< its path
  std::int64_t first = 1;  ///< line of the text, from 1, at which its rows begin
  std::int64_t line = 1;   ///< number of that line in the file
};

/// Splits a text into rows and fields (RFC 4180): a quoted field may contain commas, line breaks
/// and doubled quotes. Spaces and tabs around fields (tabs unless they separate them), empty lines
/// and a byte order mark are skipped.
class CsvRows {
 public:
  /// `text` and `files` must outlive this object; `file` is used in messages, or that of `files` in
  /// which a line is. `separator`: between fields. Throws the error of require_table().
  CsvRows(std::string_view text, std::string file, char separator = ',',
          std::span<const TableFile> files = {});

  /// Advances to the next row; false after the last. Throws Error (data) with file, line and column
  /// for misplaced quotes.
  bool next();
  /// Advances to a row of `kinds.size()` plain fields, several times as fast as next(): numbers
  /// such as -12.5 of up to 18 digits become numbers[column], exactly, and words words[column],
  /// valid as long as the text. Returns false, without advancing, for any other row, or if accept()
  /// then returns false.
  template <typename Accept>
  bool next_plain(std::span<const PlainField> kinds, std::span<double> numbers,
                  std::span<std::string_view> words, Accept accept) {
    const char* const end = parse_plain(kinds, numbers, words);
    if (end == nullptr || !accept()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    line_ = next_line_++;
    return true;
  }
  /// The fields of the row, without quotes; valid until next().
  const std::vector<std::string_view>& fields() const { return fields_; }
  /// Whether the field of this column was in quotes.
  bool is_quoted(std::size_t column) const { return quoted_[column]; }
  /// The line of the file, from 1, where the row starts.
  std::int64_t line() const { return line_; }
  /// The line after the row, and the text from there on.
  std::int64_t next_line() const { return next_line_; }
  std::string_view rest() const { return rest_; }
  /// "line 7", or "line 7 of b.csv" if there are several files; for a line() of this text.
  std::string line_text(std::int64_t line) const;

  /// Throws the Error (data) about a field of this row; `column` is from 0.
  [[noreturn]] void fail(std::size_t column, std::string_view expected,
                         std::string_view actual) const;
  /// Throws Error (data) unless the row has `count` fields.
  void require_fields(std::size_t count) const;
  /// The index of the column `name` in this row, the header. Throws Error (input).
  std::size_t require_column(std::string_view name) const;

 private:
  /// The end of the row; null if it is not plain.
  const char* parse_plain(std::span<const PlainField> kinds, std::span<double> numbers,
                          std::span<std::string_view> words) const;
  std::string_view read_quoted();
  std::string_view read_plain();
  bool at_end_of_line() const { return rest_.empty() || rest_.front() == '\n'; }
  void skip_blanks();

  /// The file of a line, and its number there.
  std::pair<std::string_view, std::int64_t> place_of(std::int64_t line) const;

  std::array<bool, 256> ends_field_ = {};  // a separator, the end of the line, or a quote
  std::string file_;
  std::span<const TableFile> files_;
  char separator_;
  std::string_view blank_;  // what is skipped around fields
  std::string_view rest_;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
  std::vector<std::string_view> fields_;
  std::vector<bool> quoted_;          // [fields]
  std::deque<std::string> unquoted_;  // fields with doubled quotes, which need an unescaped copy
};

/// Parses a field that consists of a number only. Infinity for 1e400 and other numbers that are too
/// large for a floating-point type, 0 for 1e-400 and others that are too small.
template <typename Number>
std::optional<Number> csv_number(std::string_view field);

/// Whether the field is a usual form of a missing value: empty, NA, NULL, nan, ?, ...
bool is_missing(std::string_view field);
/// Those spellings.
std::span<const std::string_view> missing_spellings();

/// Whether the field is a number with a decimal comma.
bool has_decimal_comma(std::string_view field);
/// Whether the field is a number in a form that is not read: 1,5; 14,458.30; $5; 12 %.
bool is_formatted_number(std::string_view field);
/// Whether the field begins as a date: 2026-11-24, 24.11.2026, 11/24/2026 10:30.
bool is_date(std::string_view field);

}  // namespace lockstep::inline v0::data
