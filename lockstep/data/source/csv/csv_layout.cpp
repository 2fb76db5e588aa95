#include "lockstep/data/source/csv/csv_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/data/source/csv/csv_header.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::data {
namespace {

/// Whether `first` is "examples,features,class names...", the header of TensorFlow's Iris files.
bool has_count_header(const CsvFields& first, const CsvFields& second) {
  if (first.size() < 4 || !std::ranges::all_of(second, is_number_field)) return false;
  const auto records = csv_number<std::int64_t>(first[0]);
  const auto features = csv_number<std::int64_t>(first[1]);
  return records && *records > 0 && features &&
         *features == static_cast<std::int64_t>(second.size()) - 1 &&
         std::none_of(first.begin() + 2, first.end(), is_number_field);
}

/// Rejects a table whose first line has only another separator.
void check_separator(std::string_view text, char separator, const std::string& file) {
  const char found = separator_of(text, separator);
  if (found == separator) return;
  throw Error(
      ErrorCategory::data, file,
      fmt::format("expected {} between columns, or another separator as in 'csv:FILE:sep={}'",
                  separator_text(separator),
                  found == '\t'  ? "tab"
                  : found == '|' ? "pipe"
                  : found == ';' ? "semicolon"
                                 : "comma"),
      fmt::format("the first row has {} instead", separator_text(found)));
}

/// A column without a name is identified by its number, or if another column has that name, as in
/// pandas. Two columns with the same name would be ambiguous.
std::vector<std::string> names_of(const CsvFields& header, const std::string& file) {
  std::vector<std::string> names = header;
  const std::unordered_set<std::string_view> known(header.begin(), header.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!header[i].empty()) continue;
    const std::string number = std::to_string(i + 1);
    names[i] = known.contains(number) ? fmt::format("Unnamed: {}", i) : number;
  }
  std::unordered_map<std::string_view, std::size_t> numbers;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const auto [same, is_new] = numbers.try_emplace(names[i], i); !is_new)
      throw Error(
          ErrorCategory::data, file, "expected columns of different names",
          fmt::format("columns {} and {} are both called {}", same->second + 1, i + 1, names[i]));
  }
  return names;
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

  std::size_t claim(std::size_t column, const char* option) {
    std::string_view& meaning = meanings_[column];
    if (!meaning.empty() && !(meaning == kFeature && meaning == option))
      throw Error(ErrorCategory::input, file_,
                  fmt::format("expected one meaning for the column {}", names_[column]),
                  fmt::format("got {}= and {}=", meaning, option));
    meaning = option;
    return column;
  }

  std::vector<std::size_t> claim_all(const std::vector<std::string>& names, const char* option) {
    std::vector<std::size_t> columns;
    for (const std::string& name : names) columns.push_back(claim(find(name, option), option));
    return columns;
  }

  /// The columns of the features of `schema`, each once.
  std::vector<std::size_t> claim_features(const TableSchema& schema) {
    std::vector<std::size_t> columns;
    std::vector<bool> is_listed(names_.size());
    for (const TableFeature& feature : schema.features)
      for (const std::string& name : feature.columns) {
        const std::size_t column = claim(find(name, kFeature), kFeature);
        if (!is_listed[column]) columns.push_back(column);
        is_listed[column] = true;
      }
    return columns;
  }

  /// Allows them to be features as well.
  void release(const std::vector<std::size_t>& columns) {
    for (const std::size_t column : columns) meanings_[column] = {};
  }

  std::vector<std::size_t> unclaimed() const {
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

/// Marks the columns of words, which have no numbers in any feature.
void mark_words(CsvLayout& layout, const TableSchema& schema) {
  for (const bool has_numbers : {false, true})
    for (const TableFeature& feature : schema.features)
      for (const std::string& name : feature.columns)
        if (feature.has_numbers() == has_numbers)
          layout.is_categorical[*layout.find(name)] = !has_numbers;
}

/// The window in the options, which complete those of a features file.
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

/// The window in the schema of the training table; options other than the stride may only repeat
/// it.
TableWindow trained_window_of(const CsvOptions& options, const TableWindow& trained,
                              const std::string& origin, const std::string& file) {
  const auto require = [&](const char* option, auto actual, auto expected) {
    if (actual == expected) return;
    throw Error(ErrorCategory::input, file,
                trained.rows == 0
                    ? fmt::format("expected no windows of rows, as in {}", origin)
                    : fmt::format("expected {}={}, as in {}", option, expected, origin),
                fmt::format("got {}={}", option, actual));
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

/// Assigns the columns by the options and a features file.
void assign_roles(CsvLayout& layout, const CsvOptions& options, const TableSchema& described,
                  const std::string& file) {
  Columns columns(layout, file);
  columns.claim_all(options.leave_out, "drop");
  columns.claim_all(described.left_out, "drop");
  const bool has_roles = !options.label.empty() || !options.targets.empty();
  const std::string& label = has_roles ? options.label : described.label;
  layout.targets = columns.claim_all(has_roles ? options.targets : described.targets, "targets");
  if (!label.empty())
    layout.label = columns.claim(columns.find(label, "label"), "label");
  else if (layout.targets.empty() && !options.may_lack_labels)
    layout.label = columns.claim(layout.names.size() - 1, "label");
  layout.window = window_of(options, described.window, file);
  if (!layout.window.series.empty())
    layout.series = columns.claim(columns.find(layout.window.series, "series"), "series");
  if (layout.window.rows > 0 && layout.window.horizon > 0) columns.release(layout.targets);
  if (layout.label && !layout.targets.empty())
    throw Error(ErrorCategory::input, file, "expected a label or targets", "got both");
  if (layout.label && layout.window.steps > 1)
    throw Error(ErrorCategory::input, file, "expected targets=COLUMNS with steps=",
                fmt::format("got the label {}", layout.names[*layout.label]));
  layout.features = columns.claim_features(described);
  layout.plain =
      options.columns.empty() ? columns.unclaimed() : columns.claim_all(options.columns, "columns");
  layout.features.insert(layout.features.end(), layout.plain.begin(), layout.plain.end());
  for (const std::string& name : options.categorical)
    layout.is_categorical[columns.find(name, "categorical")] = true;
  for (const std::string& name : options.keep) columns.find(name, "keep");
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

/// Names for a table without a header, whose columns have the order of the training table; it may
/// lack those that a prediction does not read.
std::vector<std::string> names_by_position(std::size_t columns, const CsvOptions& options,
                                           const TableSchema& trained, const std::string& origin,
                                           const std::string& file) {
  if (trained.columns.size() == columns) return trained.columns;
  std::vector<std::string> features = trained.columns;
  if (options.may_lack_labels)
    std::erase_if(features, [&](const auto& name) { return is_answer(trained, name); });
  if (features.size() == columns) return features;
  throw Error(ErrorCategory::data, file,
              fmt::format("expected the {} of {}, whose columns have no names, in their order",
                          counted(std::ssize(trained.columns), "column"), origin),
              fmt::format("got {}", columns));
}

/// Throws Error (data) unless the table begins with column names of the training table.
void require_names(const CsvFields& first, const CsvOptions& options, const TableSchema& trained,
                   const std::string& origin, const std::string& file) {
  const auto has_name = [&](const TableFeature& feature) {
    return std::ranges::find(first, feature.columns.front()) != first.end();
  };
  const bool has_header = options.header != CsvHeader::no;
  if (has_header && std::ranges::any_of(trained.features, has_name)) return;
  std::vector<std::string_view> names;
  for (const TableFeature& feature : trained.features) names.push_back(feature.columns.front());
  const std::vector<std::string_view> row(first.begin(), first.end());
  throw Error(ErrorCategory::data, file,
              fmt::format("expected a first row with the names of the columns, as in {}: {}",
                          origin, list_names(names)),
              has_header ? fmt::format("got \"{}\"", list_names(row)) : "got header=no");
}

/// Assigns the columns by the schema of the training table.
void apply_trained_schema(CsvLayout& layout, const CsvOptions& options, const TableSchema& trained,
                          const std::string& origin, const std::string& file) {
  // Only names, not column numbers: those would be guesses.
  const auto find = [&](const std::string& name, const char* what) {
    const auto column = layout.numbers.find(name);
    if (column == layout.numbers.end())
      throw Error(ErrorCategory::data, file,
                  fmt::format("expected the column {}, {} of {}", name, what, origin),
                  fmt::format("the columns are {}", fmt::join(layout.names, ", ")));
    return column->second;
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
  mark_words(layout, trained);
  std::vector<std::size_t> requested;
  for (const std::string& name : options.columns)
    requested.push_back(layout.find(name).value_or(layout.names.size()));
  if (!requested.empty() && requested != layout.features) {
    std::vector<std::string> names;
    for (const std::size_t column : layout.features) names.push_back(layout.names[column]);
    throw Error(ErrorCategory::input, file,
                fmt::format("expected columns={}, as in {}", quote_spec(names), origin),
                fmt::format("got {}", quote_spec(options.columns)));
  }
  if (options.may_lack_labels) return;
  // The names in training, unless the options set others that the table has instead.
  std::vector<std::string> target_names = trained.targets;
  std::vector<std::string> others = options.targets;
  if (!trained.label.empty()) target_names = {trained.label};
  if (!trained.label.empty() && !options.label.empty()) others = {options.label};
  if (!others.empty() && others.size() != target_names.size())
    throw Error(ErrorCategory::input, file,
                fmt::format("expected targets={}, as in {}", quote_spec(target_names), origin),
                fmt::format("got {}", quote_spec(others)));
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto other = layout.find(others[i]);
    const auto own = layout.numbers.find(target_names[i]);
    if (own != layout.numbers.end() && other != own->second)
      throw Error(ErrorCategory::input, file,
                  fmt::format("expected {} as {} {}, as in {}", target_names[i],
                              trained.label.empty() ? "target" : "label", i + 1, origin),
                  fmt::format("got {}", others[i]));
    target_names[i] = other ? layout.names[*other] : others[i];
  }
  if (!trained.label.empty())
    layout.label = find(target_names.front(), "the label");
  else
    for (const std::string& name : target_names) layout.targets.push_back(find(name, "a target"));
}

/// If each line ends in a separator, the last column is not the label.
void check_last_column(const CsvFields& first, const CsvFields& second, const CsvOptions& options,
                       const TableSchema& described, const std::string& file) {
  const bool has_roles = !options.label.empty() || !options.targets.empty() ||
                         !described.label.empty() || !described.targets.empty();
  if (has_roles || first.size() != second.size() || !first.back().empty() || !second.back().empty())
    return;
  throw Error(ErrorCategory::data, file,
              fmt::format("expected a label in the last column; where each line ends in a "
                          "separator, label=COLUMN names the label and drop={} leaves that column "
                          "out",
                          first.size()),
              "the last field of the first lines is empty");
}

}  // namespace

std::optional<std::size_t> CsvLayout::find(const std::string& name) const {
  if (const auto found = numbers.find(name); found != numbers.end()) return found->second;
  const auto number = csv_number<std::size_t>(name);
  if (number && *number >= 1 && *number <= names.size()) return *number - 1;
  return std::nullopt;
}

std::vector<std::string> CsvLayout::left_out() const {
  std::vector<bool> is_read(names.size());
  for (const auto* columns : {&features, &targets})
    for (const std::size_t column : *columns) is_read[column] = true;
  for (const auto& column : {label, series})
    if (column) is_read[*column] = true;
  std::vector<std::string> others;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!is_read[i]) others.push_back(names[i]);
  return others;
}

CsvLayout CsvLayout::detect(std::string_view text, const std::string& file,
                            const CsvOptions& options, const TableSchema* known,
                            const std::string& origin) {
  CsvRows rows(text, file, options.separator);
  check_table_text(text, file);
  check_separator(text, options.separator, file);
  const auto next = [&] {
    return rows.next() ? CsvFields(rows.fields().begin(), rows.fields().end()) : CsvFields();
  };
  const CsvFields first = next();
  const CsvFields second = next();
  CsvLayout layout;
  if (first.empty()) throw Error(ErrorCategory::data, file, "expected rows", "the file has none");
  constexpr std::size_t kMaxColumns = TableSchema::kMaxFeatures;
  if (first.size() > kMaxColumns)
    throw Error(ErrorCategory::data, file, fmt::format("expected at most {} columns", kMaxColumns),
                fmt::format("got {}", first.size()));
  const bool is_trained = known != nullptr && !known->columns.empty();
  const TableSchema described = known != nullptr && !is_trained ? *known : TableSchema();
  if (is_trained && known->has_header) {
    require_names(first, options, *known, origin, file);
    layout.has_header = layout.has_names = true;
  } else if (options.header != CsvHeader::no && has_count_header(first, second)) {
    layout.has_header = true;
    layout.announced_records = *csv_number<std::int64_t>(first[0]);
    layout.classes.assign(first.begin() + 2, first.end());
  } else if (options.header != CsvHeader::no) {
    layout.has_header = layout.has_names =
        options.header == CsvHeader::yes || is_header(first, text, file, options, described);
  }
  if (layout.has_header && second.empty())
    throw Error(ErrorCategory::data, file, "expected rows", "the file has a header alone");
  const std::size_t columns = (layout.has_header ? second : first).size();
  if (is_trained && !known->has_header) {
    layout.names = names_by_position(columns, options, *known, origin, file);
  } else if (layout.has_names) {
    layout.names = names_of(first, file);
    for (std::size_t i = 0; i < first.size(); ++i)
      if (first[i].empty() || first[i].starts_with("Unnamed: ")) layout.unnamed.push_back(i);
  } else {
    for (std::size_t i = 1; i <= columns; ++i) layout.names.push_back(std::to_string(i));
  }
  for (std::size_t i = 0; i < layout.names.size(); ++i)
    layout.numbers.try_emplace(layout.names[i], i);
  for (auto* marks : {&layout.is_categorical, &layout.is_date, &layout.is_inferred_word})
    marks->resize(layout.names.size());
  if (!is_trained && !second.empty()) check_last_column(first, second, options, described, file);
  if (is_trained)
    apply_trained_schema(layout, options, *known, origin, file);
  else
    assign_roles(layout, options, described, file);
  return layout;
}

}  // namespace lockstep::inline v0::data
