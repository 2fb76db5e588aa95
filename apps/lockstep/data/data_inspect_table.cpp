#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/lockstep/data/data_tools.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/source/csv/csv_header.h"
#include "lockstep/data/source/csv/csv_source.h"

namespace lockstep::inline v0::apps {
namespace {

std::string_view kind_name(data::ColumnCounts::Kind kind) {
  switch (kind) {
    case data::ColumnCounts::Kind::numbers:
      return "numbers";
    case data::ColumnCounts::Kind::dates:
      return "dates";
    case data::ColumnCounts::Kind::words:
      return "words";
    case data::ColumnCounts::Kind::empty:
      break;
  }
  return "-";
}

/// The range and the mean of numbers, or the most frequent values with their rows.
std::string values_text(const data::ColumnCounts& column, bool is_label) {
  constexpr std::size_t kShown = 5;
  if (column.inferred_kind() == data::ColumnCounts::Kind::numbers && !is_label &&
      column.numbers > 0)
    return fmt::format("{} to {}, mean {:.6g}", column.lowest, column.highest,
                       column.sum / static_cast<double>(column.numbers));
  std::vector<std::size_t> order(column.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t value) { return column.rows[value]; });
  std::vector<std::string> texts;
  for (const std::size_t value : std::span(order).first(std::min(order.size(), kShown)))
    texts.push_back(fmt::format("{} {}", column.values.words()[value], column.rows[value]));
  return fmt::format("{}{}", fmt::join(texts, ", "), order.size() > kShown ? ", ..." : "");
}

/// What a training does with a column, after a semicolon; empty for a usual feature.
std::string use_text(const data::CsvLayout& layout, std::size_t column) {
  const auto has = [&](const std::vector<std::size_t>& columns) {
    return std::ranges::count(columns, column) > 0;
  };
  if (layout.label == column) return "; label";
  if (has(layout.targets)) return "; target";
  if (layout.series == column) return "; series";
  if (has(layout.identifiers)) return "; left out: an identifier";
  if (has(layout.features)) return "";
  return "; left out";
}

/// Prints the columns of a table.
void print_contents(const data::CsvSource::Contents& contents) {
  const data::CsvLayout& layout = contents.layout;
  fmt::print("{} {} a header, {}\n", counted(contents.rows, "record"),
             layout.has_header ? "below" : "without", counted(std::ssize(layout.names), "column"));
  fmt::print("  {:<23} {:<9}{:>10}{:>10}{:>10}  {}\n", "name", "kind", "values", "different",
             "missing", "range, or rows of each value");
  for (std::size_t i = 0; i < layout.names.size(); ++i) {
    const data::ColumnCounts& column = contents.columns[i];
    const bool is_label = layout.label == i;
    const bool is_full = column.values.size() == data::ColumnCounts::kMaxValues;
    fmt::print("  {:<23} {:<9}{:>10}{:>10}{:>10}  {}{}{}\n", printable(layout.names[i]),
               kind_name(column.inferred_kind()), column.present(),
               fmt::format("{}{}", column.values.size(), is_full ? "+" : ""), column.missing,
               printable(values_text(column, is_label)), use_text(layout, i),
               column.is_distinct() && std::ranges::count(layout.features, i) > 0
                   ? "; all different"
                   : "");
  }
}

}  // namespace

void inspect_table(data::CsvSpec table, const std::function<void(const data::Dataset&)>& inspect) {
  data::CsvOptions& options = table.options;
  const auto scale = options.scale;
  if (!options.scale) options.scale = data::ColumnScale::none;
  if (!options.missing) options.missing = data::MissingValues{data::MissingValues::Rule::mean};
  const std::string file = table.file.string();
  try {
    inspect(data::Dataset::from_csv(table.file, options));
    fmt::print("\ncolumns of ");
    print_contents(data::CsvSource::contents(table.file, options));
  } catch (const data::DoubtfulHeader& doubt) {
    fmt::print("{}\n", doubt.what());
    for (const auto& [header, name] :
         {std::pair(data::CsvHeader::yes, "yes"), {data::CsvHeader::no, "no"}}) {
      options.header = header;
      fmt::print("\nwith header={}: ", name);
      try {
        print_contents(data::CsvSource::contents(table.file, options));
      } catch (const Error& error) {
        if (error.category() != ErrorCategory::data) throw;
        fmt::print("{}\n", error.what());
      }
    }
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::data) throw;
    const auto contents = data::CsvSource::contents(table.file, options);
    fmt::print("{}: ", printable(file));
    print_contents(contents);
    options.scale = scale;
    try {
      const auto as_trained = data::Dataset::from_csv(table.file, options);
    } catch (const Error& stop) {
      fmt::print("\na training stops: {}\n", stop.what());
    }
  }
}

}  // namespace lockstep::inline v0::apps
