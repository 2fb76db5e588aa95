#include "lockstep/data/source/csv/csv_inference.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/table/column_counts.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::int64_t kScannedRows = 10'000;

bool contains(const std::vector<std::size_t>& columns, std::size_t column) {
  return std::ranges::find(columns, column) != columns.end();
}

/// Whether a column is called "id", "ID", "user_id", "user id" or "userId".
bool is_id_name(std::string_view name) {
  if (name.size() < 2) return false;
  const std::string_view end = name.substr(name.size() - 2);
  if (end != "id" && end != "Id" && end != "ID") return false;
  if (name.size() == 2) return true;
  const auto before = static_cast<unsigned char>(name[name.size() - 3]);
  return end == "id" ? std::isalnum(before) == 0 : std::isupper(before) == 0;
}

/// The values of a column in all rows.
struct Values {
  std::vector<std::size_t> hashes;
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -std::numeric_limits<double>::infinity();

  void add(std::string_view field) {
    hashes.push_back(std::hash<std::string_view>{}(field));
    if (const auto number = csv_number<double>(field)) {
      lowest = std::min(lowest, *number);
      highest = std::max(highest, *number);
    }
  }
  double count() const { return static_cast<double>(hashes.size()); }
  bool differ() {
    std::ranges::sort(hashes);
    return std::ranges::adjacent_find(hashes) == hashes.end();
  }
};

std::vector<Values> values_of(CsvRows rows, const std::vector<std::size_t>& columns) {
  std::vector<Values> values(columns.size());
  try {
    while (!columns.empty() && rows.next())
      for (std::size_t i = 0; i < columns.size(); ++i)
        if (columns[i] < rows.fields().size() && !is_missing(rows.fields()[columns[i]]))
          values[i].add(rows.fields()[columns[i]]);
  } catch (const Error&) {  // found again when the rows are read
  }
  return values;
}

/// Whether the values in the first rows allow a column to be an identifier.
bool may_identify(const ColumnCounts& first, bool is_unnamed) {
  const bool is_plain = first.inferred_kind() == ColumnCounts::Kind::words ||
                        (first.numbers == first.present() && !first.has_fractions);
  return is_plain && (is_unnamed || first.present() >= kDistinctRows) &&
         std::ssize(first.values.words()) == first.present();
}

bool is_identifier(const ColumnCounts& first, Values& values, const std::string& name,
                   bool is_unnamed) {
  constexpr double kDensity = 4;
  if (!values.differ()) return false;
  const bool numbers_rows = (values.lowest == 0 || values.lowest == 1) &&
                            values.highest - values.lowest + 1 == values.count();
  if (is_unnamed && numbers_rows) return true;
  if (values.count() < static_cast<double>(kDistinctRows)) return false;
  return first.inferred_kind() == ColumnCounts::Kind::words || is_id_name(name) ||
         (values.lowest >= 0 && values.highest < kDensity * values.count());
}

void leave_out(CsvLayout& layout, const std::vector<std::size_t>& columns) {
  const auto is_left_out = [&](std::size_t column) { return contains(columns, column); };
  std::erase_if(layout.plain, is_left_out);
  std::erase_if(layout.features, is_left_out);
}

}  // namespace

void infer_columns(CsvLayout& layout, const CsvRows& rows, const CsvOptions& options) {
  const auto counts = ColumnCounts::count(rows, layout.names.size(), kScannedRows);
  std::vector<std::size_t> candidates;
  for (const std::size_t column : layout.plain) {
    if (contains(layout.targets, column) || layout.is_categorical[column]) continue;
    const ColumnCounts& first = counts[column];
    const bool is_kept =
        !options.columns.empty() || std::ranges::any_of(options.keep, [&](const std::string& name) {
          return layout.find(name) == column;
        });
    layout.is_date[column] = first.inferred_kind() == ColumnCounts::Kind::dates;
    layout.is_inferred_word[column] = layout.is_categorical[column] =
        first.inferred_kind() == ColumnCounts::Kind::words;
    const bool is_whole = first.missing < kScannedRows;
    if (first.present() == 0 && is_whole && !is_kept) layout.empty.push_back(column);
    if (!is_kept && first.present() > 0 && may_identify(first, contains(layout.unnamed, column)))
      candidates.push_back(column);
  }
  leave_out(layout, layout.empty);
  std::vector<Values> values = values_of(rows, candidates);
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (is_identifier(counts[candidates[i]], values[i], layout.names[candidates[i]],
                      contains(layout.unnamed, candidates[i])))
      layout.identifiers.push_back(candidates[i]);
  const bool is_feature_left = std::ranges::any_of(layout.features, [&](std::size_t column) {
    return !contains(layout.identifiers, column) && !contains(layout.targets, column);
  });
  if (is_feature_left)
    leave_out(layout, layout.identifiers);
  else
    layout.identifiers.clear();
}

}  // namespace lockstep::inline v0::data
