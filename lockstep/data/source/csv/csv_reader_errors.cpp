// Errors of CsvReader about unusable fields, and what to do about them. No proposal may lead to a
// training that silently is wrong: each is made only if all rows agree with it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/data/source/csv/csv_reader.h"
#include "lockstep/data/table/transform.h"

namespace lockstep::inline v0::data {
namespace {

/// Maximum number of rows in which unknown values are counted.
constexpr std::int64_t kCountedRows = 1000;

/// The first few words.
std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t kShown = 10;
  const auto shown = std::span(words).first(std::min(words.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), words.size() > kShown ? "..." : "");
}

/// Calls use(rows) for this row and those after it, as long as it returns true.
template <typename Use>
void for_rest(CsvRows rows, Use use) {
  try {
    while (use(rows) && rows.next())
      ;
  } catch (const Error&) {  // rows after misplaced quotes cannot be split
  }
}

std::string got(std::string_view field) { return fmt::format("got \"{}\"", field); }

}  // namespace

const ColumnCounts& CsvReader::counts(std::size_t column) {
  if (counts_.empty()) counts_ = ColumnCounts::count(rows(), meaning_.layout.names.size());
  return counts_[column];
}

void CsvReader::fail_category(const CsvRows& rows, std::size_t index) {
  const TableFeature& feature = meaning_.schema.features[index];
  const std::size_t column = columns_[index].front();
  const auto unknown_in = [&](std::string_view field) {
    std::optional<std::string_view> unknown;
    const auto find = [&](std::string_view word) {
      if (!unknown && category(index, word) < 0) unknown = word;
    };
    if (feature.output == CategoryOutput::multi_hot)
      for_words(feature.separator, field, find);
    else
      find(field);
    return unknown;
  };
  const std::string_view field = rows.fields()[column];
  const auto word = unknown_in(field);
  if (!word)
    rows.fail(column, fmt::format("expected at most {} different fields", kMaxSets),
              fmt::format("\"{}\" is one more", field));
  if (!vocabularies_[index].is_learned) fail_limit(rows, column, *word);
  if (keeps_bad_rows_ || report_ != nullptr)  // one error per row, about that row alone
    rows.fail(column,
              fmt::format("expected a value that the column {} of {} has ({})",
                          feature.columns.front(), meaning_.origin, listed(feature.vocabulary)),
              got(*word));
  std::int64_t count = 0;
  std::int64_t unknown = 0;
  for_rest(rows, [&](const CsvRows& row) {
    if (row.fields().size() != rows.fields().size()) return true;
    ++count;
    if (unknown_in(row.fields()[column])) ++unknown;
    return count < kCountedRows;
  });
  rows.fail(column,
            fmt::format("expected a value that the column {} of {} has ({}){}",
                        feature.columns.front(), meaning_.origin, listed(feature.vocabulary),
                        2 * unknown > count ? "" : ", or unknown=column in the training"),
            fmt::format("{}; unknown from here on: {} of {}", got(*word), unknown,
                        counted(count, "row")));
}

void CsvReader::fail_limit(const CsvRows& rows, std::size_t column, std::string_view word) const {
  rows.fail(
      column,
      fmt::format("expected at most {} different values in the column {}; drop={} leaves it out",
                  kMaxValues, meaning_.layout.names[column],
                  quote_spec(meaning_.layout.names[column])),
      fmt::format("\"{}\" is one more", word));
}

/// A column of words or dates has one message in a report.
void CsvReader::fail_word(const CsvRows& rows, std::size_t column) {
  const std::string_view field = rows.fields()[column];
  const std::string& name = meaning_.layout.names[column];
  const ColumnCounts& own = counts(column);
  if (own.kind() != ColumnCounts::Kind::numbers) {
    if (report_ != nullptr && !reported_words_.insert(column).second) return;
    const std::int64_t others = own.present() - own.numbers;
    rows.fail(
        column, words_text(column, field),
        fmt::format(
            "{}{}", got(field),
            others > 1 ? fmt::format(" ({} fields of this column are not numbers)", others) : ""));
  }
  rows.fail(column,
            is_formatted_number(field)
                ? "expected a number such as 1234.5: a decimal point, and no "
                  "other separators or units"
                : "expected a number",
            own.numbers == 0 ? got(field)
                             : fmt::format("{}; {} of {} of {} are numbers", got(field),
                                           own.numbers, counted(own.present(), "value"), name));
}

std::string CsvReader::words_text(std::size_t column, std::string_view field) {
  const CsvLayout& layout = meaning_.layout;
  const std::string& name = layout.names[column];
  if (meaning_.is_known)
    return fmt::format("expected a number, as the column {} of {} has", name, meaning_.origin);
  const bool is_target = std::ranges::count(layout.targets, column) > 0;
  if (is_target && counts(column).is_distinct())
    return fmt::format("expected a number: the words of {} are all different", name);
  if (is_target)
    return fmt::format("expected a number, or label={} for a column of classes", quote_spec(name));
  if (counts(column).kind() == ColumnCounts::Kind::dates)
    return date_number(field, DatePart::days)
               ? fmt::format(
                     "expected a number (drop={}, or describe the column in a features "
                     "file: {{\"column\": \"{}\", \"date\": \"days\"}})",
                     quote_spec(name), name)
               : fmt::format(
                     "expected a number (drop={}, or write the dates as 2026-11-24, which "
                     "features files can read)",
                     quote_spec(name));
  std::vector<std::string> words;  // all of the table, so that one more run is enough
  std::vector<std::string> distinct;
  for (const std::size_t other : layout.features) {
    const ColumnCounts& fields = counts(other);
    if (layout.is_categorical[other])
      words.push_back(layout.names[other]);
    else if (fields.kind() == ColumnCounts::Kind::words)
      (fields.is_distinct() ? distinct : words).push_back(layout.names[other]);
  }
  std::string text = "expected a number";
  if (!words.empty())
    text += fmt::format(", or {} of words: categorical={}",
                        words.size() == 1 ? "a column" : "columns", quote_spec(words));
  if (!distinct.empty())
    text += fmt::format("{} drop={} for words that are all different", words.empty() ? ", or" : ";",
                        quote_spec(distinct));
  return text;
}

void CsvReader::fail_date(const CsvRows& rows, std::size_t column) const {
  const std::string_view field = rows.fields()[column];
  std::string expected = "expected a date such as 2026-11-28, 2026-11-28 12:30:00 or 28.11.2026";
  if (field.find('/') != std::string_view::npos)
    expected +=
        fmt::format(", as 01/02/2024 may be February 1 or January 2: write 2024-02-01, or drop={}",
                    quote_spec(meaning_.layout.names[column]));
  rows.fail(column, expected, got(field));
}

void CsvReader::fail_class(const CsvRows& rows, std::size_t column) {
  const std::string_view field = rows.fields()[column];
  if (lacks_label(field)) return fail_missing(rows, column, "expected a class");
  if (!learns_classes_)
    rows.fail(column,
              fmt::format("expected one of the classes {}", listed(meaning_.schema.class_names)),
              got(field));
  if (classes_.size() == kMaxValues) fail_limit(rows, column, field);
  const ColumnCounts& own = counts(column);
  const std::string& name = meaning_.layout.names[column];
  if (own.kind() == ColumnCounts::Kind::numbers)
    rows.fail(column, "expected a number in every row, or a word in every row, as in the first",
              fmt::format("{}; {} of {} of {} are numbers", got(field), own.numbers,
                          counted(own.present(), "label"), name));
  rows.fail(
      column,
      fmt::format("expected a word, as in the rows before, or categorical={}", quote_spec(name)),
      got(field));
}

/// One message for all missing values of the table. With a report, the others are skipped.
void CsvReader::fail_missing(const CsvRows& rows, std::size_t column, std::string_view expected) {
  const CsvLayout& layout = meaning_.layout;
  const std::string_view field = rows.fields()[column];
  const bool is_feature = std::ranges::count(layout.features, column) > 0;
  if (is_feature && counts(column).kind() == ColumnCounts::Kind::words)
    return fail_word(rows, column);
  if (report_ != nullptr && std::exchange(missing_is_reported_, true)) return;
  if (keeps_bad_rows_) rows.fail(column, expected, got(field));  // each row has its own problem
  struct Missing {
    std::int64_t rows = 0;
    std::int64_t line = 0;
  };
  std::vector<Missing> counts(layout.names.size());
  for_rest(rows, [&](const CsvRows& row) {
    for (std::size_t i = 0; i < std::min(counts.size(), row.fields().size()); ++i) {
      const bool is_word = layout.label == i && meaning_.schema.labels_are_words;
      if (is_word ? !lacks_label(row.fields()[i]) : !is_missing(row.fields()[i])) continue;
      if (counts[i].rows++ == 0) counts[i].line = row.line();
    }
    return true;
  });
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i].rows > 0 && requires_value_[i])
      missing.push_back(fmt::format("{} in {} (first in {})", layout.names[i],
                                    counted(counts[i].rows, "row"),
                                    rows.line_text(counts[i].line)));
  std::string advice = "remove these rows, or fill them in";
  if (meaning_.is_known)  // the options are those of the training
    advice += is_feature ? "; a training with missing=mean allows missing values" : "";
  else if (is_feature && this->counts(column).present() == 0)
    advice = fmt::format("drop={}: the column has no values", quote_spec(layout.names[column]));
  else if (is_feature)
    advice = "missing=mean or missing=indicator allows missing values; or " + advice;
  else if (layout.label == column && meaning_.schema.labels_are_words && !field.empty())
    advice += fmt::format("; label-words={} if it is the name of a class", quote_spec(field));
  rows.fail(column, fmt::format("{} ({})", expected, advice),
            fmt::format("{}; missing: {}", got(field), listed(missing)));
}

}  // namespace lockstep::inline v0::data
