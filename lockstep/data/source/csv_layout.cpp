#include "lockstep/data/source/csv_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

std::string separator_text(char separator) {
  if (separator == ',') return "a comma";
  return separator == '\t' ? "a tab" : fmt::format("\"{}\"", separator);
}

std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

}  // namespace

CsvRows::CsvRows(std::string_view text, std::string file, char separator)
    : file_(std::move(file)),
      separator_(separator),
      blank_(separator == '\t' ? " \r" : " \t\r"),
      rest_(without_mark(text)) {
  for (const char end : {separator, '\n', '"'}) ends_field_[static_cast<unsigned char>(end)] = true;
}

void CsvRows::fail(std::size_t column, std::string_view expected, std::string_view actual) const {
  throw Error(ErrorCategory::data, fmt::format("{}: line {}, column {}", file_, line_, column + 1),
              expected, actual);
}

void CsvRows::skip_blanks() {
  if (!rest_.empty() && rest_.front() > ' ') return;
  rest_.remove_prefix(std::min(rest_.find_first_not_of(blank_), rest_.size()));
}

bool CsvRows::next() {
  fields_.clear();
  if (!unquoted_.empty()) unquoted_.clear();
  for (skip_blanks(); !rest_.empty() && rest_.front() == '\n'; skip_blanks()) {
    rest_.remove_prefix(1);
    ++next_line_;
  }
  if (rest_.empty()) return false;
  line_ = next_line_;
  for (;;) {
    skip_blanks();
    fields_.push_back(rest_.starts_with('"') ? take_quoted() : take_plain());
    if (at_end_of_line()) break;
    rest_.remove_prefix(1);  // the separator
  }
  if (!rest_.empty()) rest_.remove_prefix(1);
  ++next_line_;
  return true;
}

namespace {

/// Parses a plain number; returns the end of it, or null if there is none.
const char* parse_plain(const char* at, const char* end, double& number) {
  // Quotients of integers up to 2^53 and these powers are correctly rounded.
  constexpr std::array<double, 19> kPowers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                              1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                              1e14, 1e15, 1e16, 1e17, 1e18};
  constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
  std::uint64_t digits = 0;
  const auto take_digits = [&] {
    const char* const begin = at;
    for (; at != end; ++at) {
      const auto digit = static_cast<unsigned char>(*at - '0');
      if (digit > 9) break;
      digits = digits * 10 + digit;  // what overflows has too many digits
    }
    return static_cast<std::size_t>(at - begin);
  };
  const bool is_negative = at != end && *at == '-';
  if (is_negative) ++at;
  const std::size_t whole = take_digits();
  if (whole == 0) return nullptr;
  std::size_t decimals = 0;
  if (at != end && *at == '.') {
    ++at;
    decimals = take_digits();
    if (decimals == 0) return nullptr;
  }
  if (whole + decimals >= kPowers.size() || digits > kExact) return nullptr;
  const double value = static_cast<double>(digits) / kPowers[decimals];
  number = is_negative ? -value : value;
  return at;
}

}  // namespace

const char* CsvRows::parse_numbers(std::span<double> numbers) const {
  const char* at = rest_.data();
  const char* const end = at + rest_.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != separator_)) return nullptr;
    at = parse_plain(at, end, numbers[i]);
    if (at == nullptr) return nullptr;
  }
  if (at != end && *at == '\r') ++at;
  if (at != end && *at++ != '\n') return nullptr;
  return at;
}

std::string_view CsvRows::take_plain() {
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

std::string_view CsvRows::take_quoted() {
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

using Row = std::vector<std::string>;

bool is_number(std::string_view field) { return csv_number<double>(field).has_value(); }

/// Whether `first` is "examples,features,class names...", the header of TensorFlow's Iris files.
bool announces(const Row& first, const Row& second) {
  if (first.size() < 4 || !std::ranges::all_of(second, is_number)) return false;
  const auto records = csv_number<std::int64_t>(first[0]);
  const auto features = csv_number<std::int64_t>(first[1]);
  return records && *records > 0 && features &&
         *features == static_cast<std::int64_t>(second.size()) - 1 &&
         std::none_of(first.begin() + 2, first.end(), is_number);
}

bool names_columns_of(const CsvOptions& options, const TableSchema* known, const Row& row) {
  const auto is_name = [&](const std::string& text) {
    return !text.empty() && !is_number(text) && std::ranges::count(row, text) > 0;
  };
  if (known != nullptr && std::ranges::any_of(known->features, [&](const TableFeature& feature) {
        return std::ranges::any_of(feature.columns, is_name);
      }))
    return true;
  return is_name(options.label) || std::ranges::any_of(options.targets, is_name) ||
         std::ranges::any_of(options.columns, is_name) ||
         std::ranges::any_of(options.leave_out, is_name) ||
         std::ranges::any_of(options.categorical, is_name);
}

/// Refuses a table whose first line has another separator only.
void check_separator(std::string_view text, char separator, const std::string& file) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  const std::string_view line = text.substr(0, text.find('\n'));
  const bool ends_in_quotes = std::ranges::count(line, '"') % 2 != 0;
  if (ends_in_quotes || line.find(separator) != std::string_view::npos) return;
  constexpr std::array<std::pair<char, std::string_view>, 4> kNames{
      {{',', ","}, {';', ";"}, {'\t', "tab"}, {'|', "pipe"}}};
  for (const auto& [other, name] : kNames)
    if (line.find(other) != std::string_view::npos)
      throw Error(
          ErrorCategory::data, file,
          fmt::format("expected {} between columns, or another separator as in 'csv:FILE?sep={}'",
                      separator_text(separator), name),
          fmt::format("the first row has {} instead", separator_text(other)));
}

/// A column without a name is identified by its number; two columns with the same name would be
/// ambiguous.
std::vector<std::string> names_of(const Row& header, const std::string& file) {
  std::vector<std::string> names = header;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = std::to_string(i + 1);
    if (const auto same =
            std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]);
        same != names.begin() + static_cast<std::ptrdiff_t>(i))
      throw Error(ErrorCategory::data, file, "expected columns of different names",
                  fmt::format("columns {} and {} are both called {}", same - names.begin() + 1,
                              i + 1, names[i]));
  }
  return names;
}

/// A header has names where the other rows have numbers.
bool looks_like_header(const Row& first, const Row& second, const CsvOptions& options,
                       const TableSchema* known, const std::string& file) {
  if (second.empty()) return std::ranges::none_of(first, is_number);
  if (names_columns_of(options, known, first)) return true;
  int numbers_under_names = 0;
  int numbers_under_numbers = 0;
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (!is_number(second[i]) && !has_decimal_comma(second[i])) continue;
    if (is_missing(first[i])) continue;
    const bool has_number = is_number(first[i]) || has_decimal_comma(first[i]);
    ++(has_number ? numbers_under_numbers : numbers_under_names);
  }
  if ((numbers_under_names > 0) != (numbers_under_numbers > 0)) return numbers_under_names > 0;
  const std::string given = numbers_under_names > 0
                                ? "the first row has numbers in some of the columns where the "
                                  "second row has them, but not in all"
                                : "neither the first nor the second row has a number";
  throw Error(ErrorCategory::data, file,
              "expected header=yes or header=no, to state whether the first row is a header",
              given);
}

/// Finds the columns named in options, and checks that none is used twice.
class Columns {
 public:
  Columns(const CsvLayout& layout, const std::string& file)
      : layout_(layout), names_(layout.names), file_(file), meanings_(names_.size()) {}

  std::size_t find(const std::string& name, const char* option) const {
    if (const auto column = layout_.find(name)) return *column;
    throw Error(ErrorCategory::input, file_,
                fmt::format("expected {}= with columns of the table: {}; or their numbers from 1",
                            option, fmt::join(names_, ", ")),
                fmt::format("got \"{}\"", name));
  }

  std::size_t take(std::size_t column, const char* option) {
    const char*& meaning = meanings_[column];
    if (meaning != nullptr && !(meaning == kFeature && option == kFeature))
      throw Error(ErrorCategory::input, file_,
                  fmt::format("expected one meaning for the column {}", names_[column]),
                  fmt::format("got {}= and {}=", meaning, option));
    meaning = option;
    return column;
  }

  std::vector<std::size_t> take_all(const std::vector<std::string>& names, const char* option) {
    std::vector<std::size_t> columns;
    for (const std::string& name : names) columns.push_back(take(find(name, option), option));
    return columns;
  }

  /// The columns of the features of `schema`, each once.
  std::vector<std::size_t> take_features(const TableSchema& schema) {
    std::vector<std::size_t> columns;
    for (const TableFeature& feature : schema.features)
      for (const std::string& name : feature.columns) {
        const std::size_t column = take(find(name, kFeature), kFeature);
        if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
      }
    return columns;
  }

  std::vector<std::size_t> not_taken() const {
    std::vector<std::size_t> columns;
    for (std::size_t i = 0; i < meanings_.size(); ++i)
      if (meanings_[i] == nullptr) columns.push_back(i);
    return columns;
  }

 private:
  static constexpr const char* kFeature = "features";

  const CsvLayout& layout_;
  const std::vector<std::string>& names_;
  const std::string& file_;
  std::vector<const char*> meanings_;  // the option that named each column
};

/// A column of words has no numbers in any feature.
void mark_words(CsvLayout& layout, const TableSchema& schema) {
  for (const bool has_numbers : {false, true})
    for (const TableFeature& feature : schema.features)
      for (const std::string& name : feature.columns)
        if (feature.has_numbers() == has_numbers)
          layout.is_categorical[*layout.find(name)] = !has_numbers;
}

/// By the options, and by a features file.
void give_meanings(CsvLayout& layout, const CsvOptions& options, const TableSchema& described,
                   const std::string& file) {
  Columns columns(layout, file);
  columns.take_all(options.leave_out, "leave_out");
  columns.take_all(described.left_out, "drop");
  const bool is_given = !options.label.empty() || !options.targets.empty();
  const std::string& label = is_given ? options.label : described.label;
  layout.targets = columns.take_all(is_given ? options.targets : described.targets, "targets");
  if (!label.empty())
    layout.label = columns.take(columns.find(label, "label"), "label");
  else if (layout.targets.empty())
    layout.label = columns.take(layout.names.size() - 1, "label");
  if (layout.label && !layout.targets.empty())
    throw Error(ErrorCategory::input, file, "expected a label or targets", "got both");
  layout.features = columns.take_features(described);
  layout.plain =
      options.columns.empty() ? columns.not_taken() : columns.take_all(options.columns, "columns");
  layout.features.insert(layout.features.end(), layout.plain.begin(), layout.plain.end());
  for (const std::string& name : options.categorical)
    layout.is_categorical[columns.find(name, "categorical")] = true;
  mark_words(layout, described);
  if (layout.features.empty())
    throw Error(
        ErrorCategory::data, file, "expected a feature and a label",
        layout.names.size() == 1 ? "there is one column" : "no column is left for features");
  for (const std::size_t column : layout.targets)
    if (layout.is_categorical[column])
      throw Error(ErrorCategory::input, file, "expected targets that are numbers",
                  fmt::format("{} is categorical", layout.names[column]));
}

bool is_answer(const TableSchema& schema, const std::string& column) {
  return column == schema.label ||
         std::ranges::find(schema.targets, column) != schema.targets.end();
}

/// A table without a header has the columns of the training table, in its order.
std::vector<std::string> names_by_position(std::size_t columns, const CsvOptions& options,
                                           const TableSchema& trained) {
  if (trained.columns.size() == columns) return trained.columns;
  std::vector<std::string> features = trained.columns;
  if (options.may_lack_labels)
    std::erase_if(features, [&](const auto& name) { return is_answer(trained, name); });
  return features.size() == columns ? features : std::vector<std::string>();
}

/// By the schema of the training table.
void give_trained_meanings(CsvLayout& layout, const CsvOptions& options, const TableSchema& trained,
                           const std::string& origin, const std::string& file) {
  const auto find = [&](const std::string& name, const char* what) {
    const auto column = layout.find(name);
    if (!column)
      throw Error(ErrorCategory::data, file,
                  fmt::format("expected the column {}, {} of {}", name, what, origin),
                  fmt::format("the columns are {}", fmt::join(layout.names, ", ")));
    return *column;
  };
  for (const TableFeature& feature : trained.features)
    for (const std::string& name : feature.columns)
      if (const std::size_t column = find(name, "a feature");
          std::ranges::find(layout.features, column) == layout.features.end())
        layout.features.push_back(column);
  // The names of the training, unless the options give others that the table has instead.
  std::vector<std::string> answers = trained.targets;
  std::vector<std::string> others = options.targets;
  if (!trained.label.empty()) answers = {trained.label};
  if (!trained.label.empty() && !options.label.empty()) others = {options.label};
  if (!others.empty() && others.size() != answers.size())
    throw Error(ErrorCategory::input, file,
                fmt::format("expected targets={}, as in {}", fmt::join(answers, ","), origin),
                fmt::format("got {}", fmt::join(others, ",")));
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto trained_column = layout.find(answers[i]);
    if (trained_column && layout.find(others[i]) != trained_column)
      throw Error(ErrorCategory::input, file,
                  fmt::format("expected {} as {} {}, as in {}", answers[i],
                              trained.label.empty() ? "target" : "label", i + 1, origin),
                  fmt::format("got {}", others[i]));
    answers[i] = others[i];
  }
  const bool has_answers = std::ranges::all_of(answers, [&](const std::string& name) {
    const auto column = layout.find(name);  // a number may be that of a feature
    return column && std::ranges::find(layout.features, *column) == layout.features.end();
  });
  if ((has_answers || !options.may_lack_labels) && !trained.label.empty())
    layout.label = find(answers.front(), "the label");
  else if (has_answers || !options.may_lack_labels)
    for (const std::string& name : answers) layout.targets.push_back(find(name, "a target"));
  std::vector<std::size_t> given;
  for (const std::string& name : options.columns) given.push_back(find(name, "a feature"));
  if (!given.empty() && given != layout.features) {
    std::vector<std::string> names;
    for (const std::size_t column : layout.features) names.push_back(layout.names[column]);
    throw Error(ErrorCategory::input, file,
                fmt::format("expected columns={}, as in {}", fmt::join(names, ","), origin),
                fmt::format("got {}", fmt::join(options.columns, ",")));
  }
  mark_words(layout, trained);
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
    if (error == std::errc::result_out_of_range) return std::numeric_limits<Number>::infinity();
    return error == std::errc{} ? std::optional(number) : std::nullopt;
  }
  return parse_number<Number>(field);
}
template std::optional<double> csv_number(std::string_view);
template std::optional<std::int32_t> csv_number(std::string_view);
template std::optional<std::int64_t> csv_number(std::string_view);
template std::optional<std::size_t> csv_number(std::string_view);

bool is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 27> kMissing = {
      "",     "NA",   "N/A",  "n/a",  "na",   "#N/A", "#NA", "<NA>", "<na>",
      "NULL", "null", "Null", "None", "none", "NaN",  "nan", "NAN",  "-nan",
      "-NaN", "nil",  "\\N",  "?",    "-",    "--",   ".",   "NaT",  "missing"};
  return std::ranges::find(kMissing, field) != kMissing.end();
}

bool has_decimal_comma(std::string_view field) {
  std::string text(field);
  std::ranges::replace(text, ',', '.');
  return text != field && csv_number<double>(text).has_value();
}

std::optional<std::size_t> CsvLayout::find(const std::string& name) const {
  const auto place = std::ranges::find(names, name);
  if (place != names.end()) return static_cast<std::size_t>(place - names.begin());
  const auto number = csv_number<std::size_t>(name);
  if (number && *number >= 1 && *number <= names.size()) return *number - 1;
  return std::nullopt;
}

CsvLayout CsvLayout::of(std::string_view text, const std::string& file, const CsvOptions& options,
                        const TableSchema* known, const std::string& origin) {
  check_separator(text, options.separator, file);
  CsvRows rows(text, file, options.separator);
  const auto next = [&] {
    return rows.next() ? Row(rows.fields().begin(), rows.fields().end()) : Row();
  };
  const Row first = next();
  const Row second = next();
  CsvLayout layout;
  if (first.empty()) throw Error(ErrorCategory::data, file, "expected rows", "the file has none");
  if (options.header != CsvHeader::no && announces(first, second)) {
    layout.has_header = true;
    layout.announced_records = *csv_number<std::int64_t>(first[0]);
    layout.classes.assign(first.begin() + 2, first.end());
  } else if (options.header != CsvHeader::no) {
    const bool names =
        std::ranges::any_of(first, [](const std::string& field) { return !is_number(field); });
    layout.has_header = options.header == CsvHeader::yes ||
                        (names && looks_like_header(first, second, options, known, file));
    if (layout.has_header) layout.names = names_of(first, file);
  }
  if (layout.has_header && second.empty())
    throw Error(ErrorCategory::data, file, "expected rows", "the file has a header alone");
  const bool is_trained = known != nullptr && !known->columns.empty();
  const std::size_t columns = (layout.has_header ? second : first).size();
  if (layout.names.empty() && is_trained)
    layout.names = names_by_position(columns, options, *known);
  if (layout.names.empty()) {
    for (std::size_t i = 1; i <= columns; ++i) layout.names.push_back(std::to_string(i));
  }
  layout.is_categorical.resize(layout.names.size());
  if (is_trained)
    give_trained_meanings(layout, options, *known, origin, file);
  else
    give_meanings(layout, options, known != nullptr ? *known : TableSchema(), file);
  return layout;
}

}  // namespace lockstep::data
