#include "lockstep/data/source/csv_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::data {
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
         std::ranges::any_of(options.categorical, is_name) || is_name(options.series);
}

/// Refuses a table in UTF-16, and one whose first line has another separator only.
void check_form(std::string_view text, char separator, const std::string& file) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") ||
      text.substr(0, 2).find('\0') != std::string_view::npos)
    throw Error(ErrorCategory::data, file,
                "expected a table in UTF-8 (iconv -f UTF-16 -t UTF-8 converts one in UTF-16)",
                "got UTF-16, or no text");
  const char found = separator_of(text, separator);
  if (found == separator) return;
  throw Error(
      ErrorCategory::data, file,
      fmt::format("expected {} between columns, or another separator as in 'csv:FILE?sep={}'",
                  separator_text(separator),
                  found == '\t'  ? "tab"
                  : found == '|' ? "pipe"
                                 : std::string(1, found)),
      fmt::format("the first row has {} instead", separator_text(found)));
}

/// A column without a name is identified by its number; two columns with the same name would be
/// ambiguous.
std::vector<std::string> names_of(const Row& header, const std::string& file) {
  std::vector<std::string> names = header;
  std::unordered_map<std::string_view, std::size_t> numbers;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = std::to_string(i + 1);
    if (const auto [same, is_new] = numbers.try_emplace(names[i], i); !is_new)
      throw Error(
          ErrorCategory::data, file, "expected columns of different names",
          fmt::format("columns {} and {} are both called {}", same->second + 1, i + 1, names[i]));
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
    std::string_view& meaning = meanings_[column];
    if (!meaning.empty() && !(meaning == kFeature && meaning == option))
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
    std::vector<bool> is_listed(names_.size());
    for (const TableFeature& feature : schema.features)
      for (const std::string& name : feature.columns) {
        const std::size_t column = take(find(name, kFeature), kFeature);
        if (!is_listed[column]) columns.push_back(column);
        is_listed[column] = true;
      }
    return columns;
  }

  /// They may be features as well.
  void release(const std::vector<std::size_t>& columns) {
    for (const std::size_t column : columns) meanings_[column] = {};
  }

  std::vector<std::size_t> not_taken() const {
    std::vector<std::size_t> columns;
    for (std::size_t i = 0; i < meanings_.size(); ++i)
      if (meanings_[i].empty()) columns.push_back(i);
    return columns;
  }

 private:
  static constexpr const char* kFeature = "features";

  const CsvLayout& layout_;
  const std::vector<std::string>& names_;
  const std::string& file_;
  std::vector<std::string_view> meanings_;  // the option that named each column
};

/// A column of words has no numbers in any feature.
void mark_words(CsvLayout& layout, const TableSchema& schema) {
  for (const bool has_numbers : {false, true})
    for (const TableFeature& feature : schema.features)
      for (const std::string& name : feature.columns)
        if (feature.has_numbers() == has_numbers)
          layout.is_categorical[*layout.find(name)] = !has_numbers;
}

/// By the options, which complete those of a features file.
TableWindow window_of(const CsvOptions& options, const TableWindow& described,
                      const std::string& file) {
  TableWindow window = described;
  if (options.window > 0) window.rows = options.window;
  window.horizon = options.horizon.value_or(window.horizon);
  window.steps = options.steps.value_or(window.steps);
  window.stride = options.stride.value_or(window.stride);
  if (!options.series.empty()) window.series = options.series;
  if (window.rows == 0 && window != TableWindow())
    throw Error(ErrorCategory::input, file,
                "expected window=ROWS with horizon=, steps=, stride= or series=", "there is none");
  return window;
}

/// By the schema of the training table; the options may only repeat it, except for the stride.
TableWindow trained_window_of(const CsvOptions& options, const TableWindow& trained,
                              const std::string& origin, const std::string& file) {
  const auto require = [&](const char* option, auto given, auto expected) {
    if (given == expected) return;
    throw Error(ErrorCategory::input, file,
                trained.rows == 0
                    ? fmt::format("expected no windows of rows, as in {}", origin)
                    : fmt::format("expected {}={}, as in {}", option, expected, origin),
                fmt::format("got {}={}", option, given));
  };
  TableWindow window = trained;
  if (options.window > 0) require("window", options.window, trained.rows);
  require("horizon", options.horizon.value_or(trained.horizon), trained.horizon);
  require("steps", options.steps.value_or(trained.steps), trained.steps);
  if (!options.series.empty()) require("series", options.series, trained.series);
  window.stride = options.stride.value_or(trained.stride);
  if (trained.rows == 0) require("stride", window.stride, trained.stride);
  return window;
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
  layout.window = window_of(options, described.window, file);
  if (!layout.window.series.empty())
    layout.series = columns.take(columns.find(layout.window.series, "series"), "series");
  if (layout.window.rows > 0 && layout.window.horizon > 0) columns.release(layout.targets);
  if (layout.label && !layout.targets.empty())
    throw Error(ErrorCategory::input, file, "expected a label or targets", "got both");
  if (layout.label && layout.window.steps > 1)
    throw Error(ErrorCategory::input, file, "expected targets=COLUMNS with steps=",
                fmt::format("got the label {}", layout.names[*layout.label]));
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

bool is_feature(const TableSchema& schema, const std::string& column) {
  return std::ranges::any_of(schema.features, [&](const TableFeature& feature) {
    return std::ranges::find(feature.columns, column) != feature.columns.end();
  });
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
  std::vector<bool> is_listed(layout.names.size());
  for (const TableFeature& feature : trained.features)
    for (const std::string& name : feature.columns) {
      const std::size_t column = find(name, "a feature");
      if (!is_listed[column]) layout.features.push_back(column);
      is_listed[column] = true;
    }
  layout.window = trained_window_of(options, trained.window, origin, file);
  if (!trained.window.series.empty()) layout.series = find(trained.window.series, "the series");
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
    return column && (std::ranges::find(layout.features, *column) == layout.features.end() ||
                      is_feature(trained, name));
  });
  const bool are_forecast = trained.window.rows > 0 && options.may_lack_labels;
  if (are_forecast)
    layout.label.reset();
  else if ((has_answers || !options.may_lack_labels) && !trained.label.empty())
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

std::optional<std::size_t> CsvLayout::find(const std::string& name) const {
  if (const auto found = numbers.find(name); found != numbers.end()) return found->second;
  const auto number = csv_number<std::size_t>(name);
  if (number && *number >= 1 && *number <= names.size()) return *number - 1;
  return std::nullopt;
}

CsvLayout CsvLayout::of(std::string_view text, const std::string& file, const CsvOptions& options,
                        const TableSchema* known, const std::string& origin) {
  check_form(text, options.separator, file);
  CsvRows rows(text, file, options.separator);
  const auto next = [&] {
    return rows.next() ? Row(rows.fields().begin(), rows.fields().end()) : Row();
  };
  const Row first = next();
  const Row second = next();
  CsvLayout layout;
  if (first.empty()) throw Error(ErrorCategory::data, file, "expected rows", "the file has none");
  constexpr std::size_t kMaxColumns = TableSchema::kMaxFeatures;
  if (first.size() > kMaxColumns)
    throw Error(ErrorCategory::data, file, fmt::format("expected at most {} columns", kMaxColumns),
                fmt::format("got {}", first.size()));
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
  for (std::size_t i = 0; i < layout.names.size(); ++i)
    layout.numbers.try_emplace(layout.names[i], i);
  layout.is_categorical.resize(layout.names.size());
  if (is_trained)
    give_trained_meanings(layout, options, *known, origin, file);
  else
    give_meanings(layout, options, known != nullptr ? *known : TableSchema(), file);
  return layout;
}

}  // namespace lockstep::data
