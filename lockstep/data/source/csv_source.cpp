#include "lockstep/data/source/csv_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/input_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"

namespace lockstep::data {
namespace {

using Words = std::set<std::string, std::less<>>;

/// The rows after the header.
CsvRows records_of(std::string_view text, const std::string& file, const CsvLayout& layout,
                   char separator) {
  CsvRows rows(text, file, separator);
  if (layout.has_header) rows.next();
  return rows;
}

void check_columns(const CsvRows& rows, std::size_t columns) {
  const std::size_t given = rows.fields().size();
  if (given != columns)
    rows.fail(std::min(given, columns) - 1,
              fmt::format("expected {} columns, as in the first row", columns),
              fmt::format("there are {}", given));
}

std::vector<std::string> sorted(const Words& words) { return {words.begin(), words.end()}; }

/// The first few, for messages.
std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 10;
  const auto shown = std::span(words).first(std::min(words.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), words.size() > kShown ? "..." : "");
}

/// Whether the field begins as a date: 2026-11-24, 24.11.2026, 11/24/2026 10:30.
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

bool is_word(std::string_view field) {
  return !csv_number<double>(field) && !is_missing(field) && !has_decimal_comma(field) &&
         !is_date(field);
}

/// Calls use(fields) for this row and those after it.
template <typename Use>
void for_rest(CsvRows rows, Use use) {
  try {
    do {
      use(rows.fields());
    } while (rows.next());
  } catch (const Error&) {  // misplaced quotes: nothing after them can be split
  }
}

/// The index of `word` in the sorted `words`; words.size() if it is not one of them.
std::size_t place_of(const std::vector<std::string>& words, std::string_view word) {
  const auto place = std::lower_bound(words.begin(), words.end(), word);
  return place != words.end() && *place == word ? static_cast<std::size_t>(place - words.begin())
                                                : words.size();
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& file, const CsvOptions& options)
    : CsvSource(file, options, nullptr) {
  read_table();
}

CsvSource::CsvSource(const std::filesystem::path& file, const CsvOptions& options,
                     const Report* report)
    : file_(file), options_(options), report_(report) {}

std::int64_t CsvSource::find_problems(const std::filesystem::path& file, const CsvOptions& options,
                                      const Report& report) {
  CsvSource table(file, options, &report);
  try {
    table.read_table();
  } catch (const Error& error) {
    report(error);
  }
  return table.records_;
}

template <typename Use>
void CsvSource::attempt(Use use) const {
  if (report_ == nullptr) return use();
  try {
    use();
  } catch (const Error& error) {
    (*report_)(error);
  }
}

void CsvSource::read_table() {
  const std::string text = read_all(InputFile(file_), Compression::none);
  layout_ = CsvLayout::of(text, file_.string(), options_);
  for (const std::size_t column : layout_.features)
    vocabulary_.columns.push_back(layout_.names[column]);
  if (options_.like.empty()) {
    learn_vocabulary(records_of(text, file_.string(), layout_, options_.separator));
  } else {
    CsvOptions known = options_;
    known.like.clear();
    take_vocabulary(CsvSource(options_.like, known).vocabulary());
  }
  set_spec();
  for (CsvRows rows = records_of(text, file_.string(), layout_, options_.separator); rows.next();)
    add_row(rows);
  if (layout_.announced_records > 0 && layout_.announced_records != records_)
    throw Error(
        ErrorCategory::data, file_.string(),
        fmt::format("expected {} rows, as stated in the first line", layout_.announced_records),
        fmt::format("there are {}", records_));
  if (layout_.label && spec_.classes() == 0 && !labels_.empty()) {
    const auto [lowest, highest] = std::ranges::minmax(labels_);
    spec_.targets.front().classes = vocabulary_.classes = std::int64_t{highest} + 1;
    label_text_ = text_of_labels(lowest, highest);
  }
}

void CsvSource::learn_vocabulary(CsvRows rows) {
  std::map<std::size_t, Words> words;
  for (const std::size_t column : layout_.features)
    if (layout_.is_categorical[column]) words[column];
  Words classes;
  bool labels_are_words = layout_.label.has_value() && layout_.classes.empty();
  // What add_row() finds as well is left to it, so that a report has the order of the rows.
  const auto next = [&] {
    try {
      return rows.next();
    } catch (const Error&) {
      if (report_ == nullptr) throw;
      return false;
    }
  };
  while (next()) {
    if (report_ != nullptr && rows.fields().size() != layout_.names.size()) continue;
    check_columns(rows, layout_.names.size());
    const auto add = [&](Words& set, std::size_t column) {
      const std::string_view word = rows.fields()[column];
      if (!set.contains(word)) set.emplace(word);
      if (set.size() <= kMaxValues) return;
      attempt([&] {
        rows.fail(column,
                  fmt::format("expected at most {} different values in the column {}", kMaxValues,
                              layout_.names[column]),
                  fmt::format("\"{}\" is one more", word));
      });
    };
    for (auto& [column, set] : words) add(set, column);
    if (!labels_are_words) continue;
    const std::size_t label = *layout_.label;
    if (!layout_.is_categorical[label] && csv_number<double>(rows.fields()[label]))
      labels_are_words = false;
    else if (!rows.fields()[label].empty())
      add(classes, label);
    else if (report_ == nullptr)
      rows.fail(label, "expected a class", "the field is empty");
  }
  for (const auto& [column, set] : words) vocabulary_.values[layout_.names[column]] = sorted(set);
  vocabulary_.labels_are_words = labels_are_words;
  vocabulary_.class_names = labels_are_words ? sorted(classes) : layout_.classes;
  vocabulary_.classes = static_cast<std::int64_t>(vocabulary_.class_names.size());
}

void CsvSource::take_vocabulary(const CsvVocabulary& known) {
  if (vocabulary_.columns != known.columns)
    throw Error(ErrorCategory::data, file_.string(),
                fmt::format("expected the features {}, as in {}", listed(known.columns),
                            options_.like.string()),
                fmt::format("got {}", listed(vocabulary_.columns)));
  vocabulary_ = known;
}

void CsvSource::set_spec() {
  std::size_t width = 0;
  for (const std::size_t column : layout_.features) {
    const auto values = vocabulary_.values.find(layout_.names[column]);
    const bool is_number = values == vocabulary_.values.end();
    widths_.push_back(is_number ? 1 : values->second.size() + (options_.unknown_column ? 1 : 0));
    width += widths_.back();
  }
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(width)};
  const auto targets = static_cast<std::int64_t>(layout_.targets.size());
  spec_ = layout_.label ? SampleSpec::classification(shape, vocabulary_.classes)
                        : SampleSpec::regression(shape, targets);
}

bool CsvSource::has_words_of_its_own() const {
  return options_.like.empty() && (vocabulary_.labels_are_words || !vocabulary_.values.empty());
}

std::vector<std::string> CsvSource::feature_names() const {
  std::vector<std::string> names;
  for (const std::size_t column : layout_.features) {
    const std::string& name = layout_.names[column];
    if (!layout_.is_categorical[column]) {
      names.push_back(name);
      continue;
    }
    for (const std::string& value : vocabulary_.values.at(name))
      names.push_back(fmt::format("{}={}", name, value));
    if (options_.unknown_column) names.push_back(name + " unknown");
  }
  return names;
}

std::vector<std::string> CsvSource::target_names() const {
  std::vector<std::string> names;
  for (const std::size_t column : layout_.targets) names.push_back(layout_.names[column]);
  return names;
}

void CsvSource::add_row(const CsvRows& rows) {
  ++records_;
  if (rows.fields().size() != layout_.names.size())
    return attempt([&] { check_columns(rows, layout_.names.size()); });
  for (const std::size_t column : layout_.features)
    attempt([&] {
      values_.push_back(layout_.is_categorical[column] ? value_number(rows, column)
                                                       : number(rows, column));
    });
  for (const std::size_t column : layout_.targets)
    attempt([&] { targets_.push_back(number(rows, column)); });
  if (layout_.label) attempt([&] { labels_.push_back(class_number(rows)); });
}

/// With a report, one message for a column that has more words than numbers from this row on.
void CsvSource::fail_word(const CsvRows& rows, std::size_t column) {
  std::string got = fmt::format("got \"{}\"", rows.fields()[column]);
  if (report_ != nullptr && !words_are_reported_.contains(column)) {
    std::int64_t words = 0;
    std::int64_t numbers = 0;
    for_rest(rows, [&](const std::vector<std::string_view>& fields) {
      if (column >= fields.size() || is_missing(fields[column])) return;
      ++(csv_number<double>(fields[column]) ? numbers : words);
    });
    words_are_reported_[column] = words > numbers;
    if (words > numbers && words > 1)
      got += fmt::format(" ({} fields of this column are not numbers)", words);
  } else if (report_ != nullptr && words_are_reported_[column]) {
    return;
  }
  rows.fail(column, number_text(rows, column), got);
}

/// One message for all missing values of the table. With a report, the others are skipped.
void CsvSource::fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected) {
  if (report_ != nullptr && std::exchange(missing_is_reported_, true)) return;
  const auto needs_value = [&](std::size_t other) {
    const bool is_label = other == layout_.label && !vocabulary_.labels_are_words;
    return is_label || std::ranges::count(layout_.targets, other) > 0 ||
           (!layout_.is_categorical[other] && std::ranges::count(layout_.features, other) > 0);
  };
  std::vector<std::int64_t> counts(layout_.names.size());
  for_rest(rows, [&](const std::vector<std::string_view>& fields) {
    for (std::size_t i = 0; i < std::min(counts.size(), fields.size()); ++i)
      counts[i] += is_missing(fields[i]);
  });
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0 && needs_value(i))
      missing.push_back(fmt::format("{} in {}", layout_.names[i], counted(counts[i], "row")));
  rows.fail(column,
            fmt::format("{} (missing values are not supported yet: remove these rows, or fill them "
                        "in)",
                        expected),
            fmt::format("got \"{}\"; missing: {}", rows.fields()[column], listed(missing)));
}

float CsvSource::number(const CsvRows& rows, std::size_t column) {
  const std::string_view field = rows.fields()[column];
  if (is_missing(field)) {
    fail_missing(rows, column, "expected a number");
    return 0;
  }
  const auto given = csv_number<double>(field);
  if (!given) {
    fail_word(rows, column);
    return 0;
  }
  const auto value = static_cast<float>(*given);
  if (!std::isfinite(value))
    rows.fail(column,
              field.find_first_of("0123456789") == std::string_view::npos
                  ? "expected a finite number"
                  : "expected a number that fits a float",
              fmt::format("got \"{}\"", field));
  return value;
}

std::string CsvSource::number_text(const CsvRows& rows, std::size_t column) const {
  const std::string_view field = rows.fields()[column];
  if (has_decimal_comma(field)) return "expected a number with a decimal point instead of a comma";
  if (std::ranges::find(layout_.targets, column) != layout_.targets.end())
    return fmt::format("expected a number, or label={} for a column of classes",
                       layout_.names[column]);
  if (is_date(field))
    return fmt::format(
        "expected a number (dates are not supported: leave_out={}, or replace them by numbers, "
        "such as the year)",
        layout_.names[column]);
  std::vector<std::string> words;  // all of the row, so that one run is enough
  for (const std::size_t other : layout_.features)
    if (layout_.is_categorical[other] || is_word(rows.fields()[other]))
      words.push_back(layout_.names[other]);
  return fmt::format("expected a number, or {} of words: categorical={}",
                     words.size() == 1 ? "a column" : "columns", fmt::join(words, ","));
}

float CsvSource::value_number(const CsvRows& rows, std::size_t column) const {
  const auto& words = vocabulary_.values.at(layout_.names[column]);
  const std::size_t place = place_of(words, rows.fields()[column]);
  if (place == words.size() && !options_.unknown_column)
    rows.fail(column,
              fmt::format("expected a value that the column {} of {} has ({}), or unknown=column",
                          layout_.names[column], options_.like.string(), listed(words)),
              fmt::format("got \"{}\"", rows.fields()[column]));
  return static_cast<float>(place);
}

std::int32_t CsvSource::class_number(const CsvRows& rows) {
  const std::string_view field = rows.fields()[*layout_.label];
  const std::string given = fmt::format("got \"{}\"", field);
  if (vocabulary_.labels_are_words) {
    const std::vector<std::string>& names = vocabulary_.class_names;
    const std::size_t place = place_of(names, field);
    if (place == names.size())
      rows.fail(*layout_.label, fmt::format("expected one of the classes {}", listed(names)),
                given);
    return static_cast<std::int32_t>(place);
  }
  if (is_missing(field)) {
    fail_missing(rows, *layout_.label, "expected a class number");
    return 0;
  }
  const auto label = csv_number<std::int32_t>(field);
  if (!label || *label < 0 || *label == std::numeric_limits<std::int32_t>::max())
    rows.fail(*layout_.label, "expected a class number (an integer from 0)", given);
  if (vocabulary_.classes > 0 && *label >= vocabulary_.classes)
    rows.fail(*layout_.label, fmt::format("expected a class number below {}", vocabulary_.classes),
              given);
  return *label;
}

void CsvSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::size_t>(record_id);
  const std::size_t columns = layout_.features.size();
  std::span<float> rest = sample.features();
  for (std::size_t i = 0; i < columns; ++i) {
    const float value = values_[record * columns + i];
    if (layout_.is_categorical[layout_.features[i]]) {
      std::ranges::fill(rest.first(widths_[i]), 0.0f);
      rest[static_cast<std::size_t>(value)] = 1;
    } else {
      rest.front() = value;
    }
    rest = rest.subspan(widths_[i]);
  }
  const std::size_t targets = layout_.targets.size();
  for (std::size_t i = 0; i < targets; ++i) sample.values()[i] = targets_[record * targets + i];
  if (layout_.label) sample.label() = labels_[record];
}

}  // namespace lockstep::data
