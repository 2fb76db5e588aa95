#include "lockstep/data/source/csv/csv_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::data {
namespace {

/// A column below the first row.
struct Column {
  std::int64_t numbers = 0;
  std::int64_t integers = 0;  // those that are integers
  std::int64_t quoted = 0;    // those in quotes
  std::int64_t words = 0;
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -std::numeric_limits<double>::infinity();
  std::map<std::string, std::int64_t, std::less<>> word_rows;  // up to kMaxWords words

  static constexpr std::size_t kMaxWords = 100;

  bool has_numbers() const { return numbers > words; }
  double range() const { return highest - lowest; }
  /// The distance of `number` from the range of the column.
  double distance(double number) const { return std::max(lowest - number, number - highest); }

  void add(std::string_view field, bool is_quoted) {
    if (is_missing(field)) return;
    const auto number = csv_number<double>(field);
    if (!number && !has_decimal_comma(field)) {
      ++words;
      if (word_rows.size() < kMaxWords || word_rows.contains(field))
        ++word_rows[std::string(field)];
      return;
    }
    ++numbers;
    if (is_quoted) ++quoted;
    if (field.find_first_of(".eE,") == std::string_view::npos) ++integers;
    if (!number || !std::isfinite(*number)) return;
    lowest = std::min(lowest, *number);
    highest = std::max(highest, *number);
  }
};

/// Whether the numbers have a constant step, as the years 2018, 2019, 2020 do.
bool has_constant_step(std::span<const double> numbers) {
  constexpr double kTolerance = 1e-9;
  if (numbers.size() < 3 || numbers[0] == numbers[1]) return false;
  const double step = numbers[1] - numbers[0];
  for (std::size_t i = 2; i < numbers.size(); ++i)
    if (!(std::abs(numbers[i] - numbers[i - 1] - step) <= kTolerance * std::abs(numbers[i])))
      return false;
  return true;
}

/// The first row, compared with those below it.
class Comparison {
 public:
  Comparison(const CsvFields& first, CsvRows rows) : first_(first), columns_(first.size()) {
    rows.next();
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (const auto number = csv_number<double>(first[i])) {
        number_columns_.push_back(i);
        numbers_.push_back(*number);
      }
      is_quoted_.push_back(rows.is_quoted(i));
    }
    read(rows);
  }

  std::int64_t rows() const { return rows_; }

  /// The count of number columns in which the first row has something else, and of those in which
  /// it has a number.
  std::pair<std::int64_t, std::int64_t> names_and_numbers() const {
    std::int64_t names = 0;
    std::int64_t numbers = 0;
    for (std::size_t i = 0; i < first_.size(); ++i) {
      if (!columns_[i].has_numbers() || is_missing(first_[i])) continue;
      ++(is_number_field(first_[i]) || is_formatted_number(first_[i]) ? numbers : names);
    }
    return {names, numbers};
  }

  /// Why the first row is not a record like the others; empty if it may be one.
  std::string reason() const {
    if (counts_columns()) return "it counts the columns from 0";
    if (has_constant_step(numbers_) && 2 * rows_with_step_ < rows_)
      return "its numbers have a constant step, as the names of years have";
    if (const auto column = quoted_above_unquoted())
      return fmt::format("its {} is in quotes, and the numbers below are not", first_[*column]);
    for (const std::size_t i : number_columns_)
      if (columns_[i].numbers == 0 && columns_[i].words >= kFewRows)
        return fmt::format("it has the number {} above words", first_[i]);
    if (is_index()) return "its first field is empty, above the numbers of the rows";
    if (is_whole_above_fractions()) return "it has integers where the rows below have fractions";
    if (is_far()) return "its numbers are far outside the range of their columns";
    for (std::size_t i = 0; i < first_.size(); ++i)
      if (is_unknown_word(i))
        return fmt::format("its {} is not among the words of the column", first_[i]);
    return {};
  }

 private:
  static constexpr std::int64_t kFewRows = 3;

  void read(CsvRows& rows) {
    constexpr std::int64_t kMaxRows = 1000;
    constexpr std::size_t kMaxFields = 1'000'000;
    std::size_t fields = 0;
    try {
      while (rows_ < kMaxRows && fields < kMaxFields && rows.next()) {
        fields += rows.fields().size();
        if (rows.fields().size() == first_.size()) add(rows);
      }
    } catch (const Error&) {  // misplaced quotes, which are found again when the table is read
    }
  }

  void add(const CsvRows& rows) {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      columns_[i].add(rows.fields()[i], rows.is_quoted(i));
    std::vector<double> numbers;
    for (const std::size_t i : number_columns_)
      numbers.push_back(
          csv_number<double>(rows.fields()[i]).value_or(std::numeric_limits<double>::quiet_NaN()));
    if (has_constant_step(numbers)) ++rows_with_step_;
    if (rows.fields().front() != std::to_string(rows_)) are_numbered_ = false;
    ++rows_;
  }

  /// 0, 1, ..., n-1, as pandas calls columns without names; an empty field is above its index.
  bool counts_columns() const {
    const std::size_t begin = !first_.empty() && first_.front().empty() ? 1 : 0;
    const std::size_t count = first_.size() - begin;
    for (std::size_t i = 0; i < count; ++i)
      if (first_[begin + i] != std::to_string(i)) return false;
    if (count == 2)  // 0 and 1 are usual numbers
      return columns_[begin].distance(0) > 0 || columns_[begin + 1].distance(1) > 0;
    return count > 2;
  }

  std::optional<std::size_t> quoted_above_unquoted() const {
    const auto found = std::ranges::find_if(number_columns_, [&](std::size_t i) {
      return is_quoted_[i] && columns_[i].numbers > 0 && columns_[i].quoted == 0;
    });
    return found == number_columns_.end() ? std::nullopt : std::optional(*found);
  }

  bool is_index() const {
    return first_.size() > 1 && first_.front().empty() && are_numbered_ && rows_ > 1;
  }

  /// Whether all columns of fractions have an integer here, which is unlikely in a record.
  bool is_whole_above_fractions() const {
    constexpr double kUnlikely = 0.01;
    if (rows_ < kFewRows) return false;
    double probability = 1;
    for (const std::size_t i : number_columns_) {
      const Column& below = columns_[i];
      if (2 * below.integers >= below.numbers) continue;
      if (first_[i].find_first_of(".eE") != std::string::npos) return false;
      probability *= static_cast<double>(std::max<std::int64_t>(below.integers, 1)) /
                     static_cast<double>(below.numbers);
    }
    return probability < kUnlikely;
  }

  /// Whether most numbers are outside their columns' range by more than its size, or all by a part
  /// of it. In a sorted column, the first number is outside by one step only.
  bool is_far() const {
    constexpr double kPart = 0.2;
    std::size_t columns = 0;
    std::size_t far = 0;
    std::size_t outside = 0;
    for (std::size_t i = 0; i < number_columns_.size(); ++i) {
      const Column& below = columns_[number_columns_[i]];
      if (below.numbers < kFewRows || !(below.range() > 0)) continue;
      ++columns;
      if (below.distance(numbers_[i]) > below.range()) ++far;
      if (below.distance(numbers_[i]) > kPart * below.range()) ++outside;
    }
    if (columns < 2) return far > 0;
    return 2 * far > columns || outside == columns;
  }

  /// Whether column `i` has few words, each in several rows, but not that of the first row.
  bool is_unknown_word(std::size_t i) const {
    constexpr std::int64_t kManyRows = 10;
    const Column& below = columns_[i];
    return below.numbers == 0 && below.words >= kManyRows &&
           below.word_rows.size() < Column::kMaxWords && !is_missing(first_[i]) &&
           !below.word_rows.contains(first_[i]) &&
           std::ranges::all_of(below.word_rows, [](const auto& word) { return word.second > 1; });
  }

  const CsvFields& first_;
  std::vector<bool> is_quoted_;
  std::vector<std::size_t> number_columns_;  // columns with a number in the first row
  std::vector<double> numbers_;
  std::vector<Column> columns_;
  std::int64_t rows_ = 0;
  std::int64_t rows_with_step_ = 0;
  bool are_numbered_ = true;  // the first column counts the rows from 0
};

/// Whether the options or the features file name a field of the row. A number may be a column
/// number instead.
bool names_field(const CsvFields& row, const CsvOptions& options, const TableSchema& described) {
  const auto is_name = [&](const std::string& text) {
    const auto number = csv_number<std::size_t>(text);
    return !text.empty() && !(number && *number >= 1 && *number <= row.size()) &&
           std::ranges::find(row, text) != row.end();
  };
  const auto has_name = [&](const std::vector<std::string>& names) {
    return std::ranges::any_of(names, is_name);
  };
  return is_name(options.label) || is_name(options.series) || has_name(options.targets) ||
         has_name(options.columns) || has_name(options.leave_out) ||
         has_name(options.categorical) || has_name(options.keep) || is_name(described.label) ||
         is_name(described.window.series) || has_name(described.targets) ||
         has_name(described.left_out) ||
         std::ranges::any_of(described.features, [&](const TableFeature& feature) {
           return has_name(feature.columns);
         });
}

[[noreturn]] void fail_doubtful(const std::string& file, const CsvFields& first,
                                const std::string& reason) {
  constexpr std::size_t kShown = 8;
  const auto shown = std::span(first).first(std::min(first.size(), kShown));
  throw DoubtfulHeader(
      ErrorCategory::data, file,
      "expected header=yes or header=no, to state whether the first row names the columns ("
      "lockstep data inspect shows both readings)",
      fmt::format("got \"{}{}\": {}", fmt::join(shown, ","), first.size() > kShown ? ",..." : "",
                  reason));
}

}  // namespace

bool is_number_field(std::string_view field) { return csv_number<double>(field).has_value(); }

bool is_header(const CsvFields& first, std::string_view text, const std::string& file,
               const CsvOptions& options, const TableSchema& described) {
  if (names_field(first, options, described)) return true;
  const Comparison comparison(first, CsvRows(text, file, options.separator));
  if (comparison.rows() == 0) return std::ranges::none_of(first, is_number_field);
  const auto [names, numbers] = comparison.names_and_numbers();
  if (names > 0 && numbers > 0)
    fail_doubtful(file, first, "it has numbers in some of the columns of numbers, but not in all");
  if (names > 0) return true;
  std::string reason = comparison.reason();
  if (reason.empty() && numbers == 0) reason = "neither this row nor those below have a number";
  if (!reason.empty()) fail_doubtful(file, first, reason);
  return false;
}

}  // namespace lockstep::inline v0::data
