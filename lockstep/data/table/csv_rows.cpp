#include "lockstep/data/table/csv_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/text.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {

void require_table(std::string_view text, const std::string& file) {
  if (const FileKind kind = file_kind(text); kind.is_no_table())
    refuse_kind(file, kind, "expected a table in CSV");
}

void check_table_text(std::string_view text, const std::string& file) {
  require_table(text, file);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") ||
      text.substr(0, 2).find('\0') != std::string_view::npos)
    throw Error(ErrorCategory::data, file,
                "expected a table in UTF-8 (iconv -f UTF-16 -t UTF-8 converts one in UTF-16)",
                "got UTF-16, or no text");
  const std::size_t end = utf8_size(text);
  if (end < text.size())
    throw Error(
        ErrorCategory::data,
        fmt::format("{}: line {}", file, 1 + std::ranges::count(text.substr(0, end), '\n')),
        "expected a table in UTF-8 (csv:FILE:encoding=latin1 reads one in Latin-1; iconv -f "
        "LATIN1 -t UTF-8 converts it)",
        fmt::format("got the byte 0x{:02x}",
                    static_cast<unsigned>(static_cast<unsigned char>(text[end]))));
  if (text.find('\n') == std::string_view::npos) {
    const std::size_t end_of_line = text.find('\r');
    if (end_of_line != std::string_view::npos && end_of_line + 1 < text.size())
      throw Error(ErrorCategory::data, file,
                  "expected lines that end in LF or CRLF (tr '\\r' '\\n' converts them)",
                  "they end in CR alone");
  }
}

std::string separator_text(char separator) {
  if (separator == ',') return "a comma";
  return separator == '\t' ? "a tab" : fmt::format("\"{}\"", separator);
}

char separator_of(std::string_view text, char expected) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const std::string_view line = text.substr(0, text.find('\n'));
  const bool ends_in_quotes = std::ranges::count(line, '"') % 2 != 0;
  if (ends_in_quotes || line.find(expected) != std::string_view::npos) return expected;
  for (const char other : {',', ';', '\t', '|'})
    if (line.find(other) != std::string_view::npos) return other;
  return expected;
}

CsvRows::CsvRows(std::string_view text, std::string file, char separator,
                 std::span<const TableFile> files)
    : file_(std::move(file)),
      files_(files),
      separator_(separator),
      blank_(separator == '\t' ? " \r" : " \t\r"),
      rest_(without_byte_order_mark(text)) {
  require_table(text, file_);
  for (const char end : {separator, '\n', '"'}) ends_field_[static_cast<unsigned char>(end)] = true;
}

std::pair<std::string_view, std::int64_t> CsvRows::place_of(std::int64_t line) const {
  const auto next = std::ranges::upper_bound(files_, line, {}, &TableFile::first);
  if (next == files_.begin()) return {file_, line};
  const TableFile& file = *(next - 1);
  return {file.name, line - file.first + file.line};
}

std::string CsvRows::line_text(std::int64_t line) const {
  const auto& [file, number] = place_of(line);
  return files_.size() > 1 ? fmt::format("line {} of {}", number, file)
                           : fmt::format("line {}", number);
}

void CsvRows::fail(std::size_t column, std::string_view expected, std::string_view actual) const {
  const auto& [file, line] = place_of(line_);
  throw Error(ErrorCategory::data, fmt::format("{}: line {}, column {}", file, line, column + 1),
              expected, actual);
}

void CsvRows::require_fields(std::size_t count) const {
  if (fields_.size() != count)
    fail(std::min(fields_.size(), count) - 1,
         fmt::format("expected {} columns, as in the first row", count),
         fmt::format("there are {}", fields_.size()));
}

std::size_t CsvRows::require_column(std::string_view name) const {
  const auto found = std::ranges::find(fields_, name);
  if (found == fields_.end())
    throw Error(
        ErrorCategory::input, file_,
        fmt::format("expected a column \"{}\" in the first line, which names the columns", name),
        fmt::format("the columns are {}", list_names(fields_)));
  if (std::find(found + 1, fields_.end(), name) != fields_.end())
    throw Error(ErrorCategory::input, file_, fmt::format("expected one column \"{}\"", name),
                "got several");
  return static_cast<std::size_t>(found - fields_.begin());
}

void CsvRows::skip_blanks() {
  if (!rest_.empty() && rest_.front() > ' ') return;
  rest_.remove_prefix(std::min(rest_.find_first_not_of(blank_), rest_.size()));
}

bool CsvRows::next() {
  fields_.clear();
  quoted_.clear();
  if (!unquoted_.empty()) unquoted_.clear();
  for (skip_blanks(); !rest_.empty() && rest_.front() == '\n'; skip_blanks()) {
    rest_.remove_prefix(1);
    ++next_line_;
  }
  if (rest_.empty()) return false;
  line_ = next_line_;
  for (;;) {
    skip_blanks();
    quoted_.push_back(rest_.starts_with('"'));
    fields_.push_back(quoted_.back() ? read_quoted() : read_plain());
    if (at_end_of_line()) break;
    rest_.remove_prefix(1);  // the separator
  }
  if (!rest_.empty()) rest_.remove_prefix(1);
  ++next_line_;
  return true;
}

namespace {

/// Parses a plain number; returns the end of it, or null if there is none.
const char* parse_digits(const char* at, const char* end, double& number) {
  // Quotients of integers up to 2^53 and these powers are correctly rounded.
  constexpr std::array<double, 19> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                              1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                              1e14, 1e15, 1e16, 1e17, 1e18};
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
  std::uint64_t digits = 0;
  const auto read_digits = [&] {
    const char* const begin = at;
    for (; at != end; ++at) {
      const auto digit = static_cast<unsigned char>(*at - '0');
      if (digit > 9) break;
      digits = digits * 10 + digit;  // overflow implies too many digits
    }
    return static_cast<std::size_t>(at - begin);
  };
  const bool is_negative = at != end && *at == '-';
  if (is_negative) ++at;
  const std::size_t whole = read_digits();
  if (whole == 0) return nullptr;
  std::size_t decimals = 0;
  if (at != end && *at == '.') {
    ++at;
    decimals = read_digits();
    if (decimals == 0) return nullptr;
  }
  if (whole + decimals >= kPowers.size() || digits > kExact) return nullptr;
  const double value = static_cast<double>(digits) / kPowers[decimals];
  number = is_negative ? -value : value;
  return at;
}

}  // namespace

const char* CsvRows::parse_plain(std::span<const PlainField> kinds, std::span<double> numbers,
                                 std::span<std::string_view> words) const {
  const char* at = rest_.data();
  const char* const end = at + rest_.size();
  if (at_end_of_line() || rest_.front() == '\r') return nullptr;  // an empty line is not a row
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0 && (at == end || *at++ != separator_)) return nullptr;
    const char* const begin = at;
    if (kinds[i] == PlainField::word) {
      while (at != end && !ends_field_[static_cast<unsigned char>(*at)]) ++at;
      if (at != end && *at == '"') return nullptr;
      words[i] = {begin, at};
      if (i + 1 == kinds.size() && words[i].ends_with('\r')) words[i].remove_suffix(1);
      if (!words[i].empty() && (words[i].front() <= ' ' || words[i].back() <= ' ')) return nullptr;
    } else if (kinds[i] == PlainField::number_or_empty &&
               (at == end || *at == separator_ || *at == '\n')) {
      numbers[i] = std::numeric_limits<double>::quiet_NaN();
    } else {
      at = parse_digits(at, end, numbers[i]);
      if (at == nullptr) return nullptr;
    }
  }
  if (at != end && *at == '\r') ++at;
  if (at != end && *at++ != '\n') return nullptr;
  return at;
}

std::string_view CsvRows::read_plain() {
  std::size_t size = 0;
  const auto skip_to_end = [&] {
    while (size < rest_.size() && !ends_field_[static_cast<unsigned char>(rest_[size])]) ++size;
  };
  skip_to_end();
  const bool has_quote = size < rest_.size() && rest_[size] == '"';
  for (; size < rest_.size() && rest_[size] == '"'; skip_to_end()) ++size;
  std::string_view field = rest_.substr(0, size);
  rest_.remove_prefix(size);
  if (!field.empty() && field.back() <= ' ')
    field = field.substr(0, field.find_last_not_of(blank_) + 1);
  if (has_quote)
    fail(fields_.size(), "expected quotes around the whole field, and doubled quotes inside it",
         fmt::format("got {}", field));
  return field;
}

std::string_view CsvRows::read_quoted() {
  rest_.remove_prefix(1);
  std::size_t end = 0;
  bool has_doubled = false;
  for (;; end += 2) {
    end = rest_.find('"', end);
    if (end == std::string_view::npos)
      fail(fields_.size(), "expected a quote that closes the field", "the file ends without one");
    if (end + 1 == rest_.size() || rest_[end + 1] != '"') break;
    has_doubled = true;
  }
  std::string_view field = rest_.substr(0, end);
  next_line_ += std::ranges::count(field, '\n');
  rest_.remove_prefix(end + 1);
  skip_blanks();
  if (!at_end_of_line() && rest_.front() != separator_)
    fail(fields_.size(),
         fmt::format("expected {} or the end of the line after the closing quote",
                     separator_text(separator_)),
         fmt::format("got {}", rest_.front()));
  if (!has_doubled) return field;
  std::string& text = unquoted_.emplace_back();
  for (std::size_t i = 0; i < field.size(); ++i) {
    text.push_back(field[i]);
    if (field[i] == '"') ++i;
  }
  return text;
}

namespace {

/// The value of a decimal number outside the range of a floating-point type: zero or infinity.
template <typename Number>
Number limit_of(std::string_view field) {
  const bool is_negative = field.starts_with('-');
  if (is_negative) field.remove_prefix(1);
  const std::size_t mark = std::min(field.find_first_of("eE"), field.size());
  const std::string_view digits = field.substr(0, mark);
  std::string_view exponent = field.substr(std::min(mark + 1, field.size()));
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  const bool is_below_one = exponent.starts_with('-');
  const auto power = parse_number<std::int64_t>(exponent);
  // The position of the first nonzero digit, before the point (> 0) or after it (<= 0).
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<std::int64_t>(digits.find_first_not_of("0."));
  const std::int64_t place = point - first + (first > point ? 1 : 0);
  const bool is_tiny = exponent.empty() ? place <= 0 : !power ? is_below_one : place + *power <= 0;
  const Number limit = is_tiny ? Number{0} : std::numeric_limits<Number>::infinity();
  return is_negative ? -limit : limit;
}

}  // namespace

template <typename Number>
std::optional<Number> csv_number(std::string_view field) {
  if (field.starts_with('+')) field.remove_prefix(1);
  if constexpr (std::is_floating_point_v<Number>) {
    Number number = 0;
    const char* const end = field.data() + field.size();
    const auto [rest, error] = std::from_chars(field.data(), end, number);
    if (rest != end) return std::nullopt;
    if (error == std::errc::result_out_of_range) return limit_of<Number>(field);
    return error == std::errc{} ? std::optional(number) : std::nullopt;
  }
  return parse_number<Number>(field);
}
template std::optional<double> csv_number(std::string_view);
template std::optional<std::int32_t> csv_number(std::string_view);
template std::optional<std::int64_t> csv_number(std::string_view);
template std::optional<std::size_t> csv_number(std::string_view);

std::span<const std::string_view> missing_spellings() {
  static constexpr std::array<std::string_view, 27> kMissing = {
      "",     "NA",   "N/A",  "n/a",  "na",   "#N/A", "#NA", "<NA>", "<na>",
      "NULL", "null", "Null", "None", "none", "NaN",  "nan", "NAN",  "-nan",
      "-NaN", "nil",  "\\N",  "?",    "-",    "--",   ".",   "NaT",  "missing"};
  return kMissing;
}

bool is_missing(std::string_view field) {
  const auto spellings = missing_spellings();
  return std::ranges::find(spellings, field) != spellings.end();
}

bool has_decimal_comma(std::string_view field) {
  std::string text(field);
  std::ranges::replace(text, ',', '.');
  return text != field && csv_number<double>(text).has_value();
}

bool is_formatted_number(std::string_view field) {
  constexpr std::array<std::string_view, 8> kIgnored = {",", "'", " ", "%", "$", "€", "£", "¥"};
  if (has_decimal_comma(field)) return true;
  std::string digits;
  for (std::string_view rest = field; !rest.empty();) {
    const auto ignored = std::ranges::find_if(
        kIgnored, [&](std::string_view text) { return rest.starts_with(text); });
    if (ignored == kIgnored.end()) digits += rest.front();
    rest.remove_prefix(ignored == kIgnored.end() ? 1 : ignored->size());
  }
  return digits.size() < field.size() && csv_number<double>(digits).has_value();
}

bool is_date(std::string_view field) {
  for (const char separator : {'-', '.', '/'}) {
    std::string_view rest = field;
    int numbers = 0;
    for (; numbers < 3; ++numbers) {
      if (numbers > 0 && !rest.starts_with(separator)) break;
      if (numbers > 0) rest.remove_prefix(1);
      const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
      if (digits == 0 || digits > 4) break;
      rest.remove_prefix(digits);
    }
    if (numbers == 3 && (rest.empty() || rest.front() == ' ' || rest.front() == 'T')) return true;
  }
  return false;
}

}  // namespace lockstep::inline v0::data
