#include "lockstep/data/table/column_counts.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

void add(ColumnCounts& column, std::string_view field, std::int64_t line) {
  if (is_missing(field)) {
    if (column.missing++ == 0) column.first_missing = line;
    return;
  }
  std::int32_t value = column.values.find(field);
  if (value < 0 && column.values.size() < ColumnCounts::kMaxValues) {
    value = column.values.add(field);
    column.rows.push_back(0);
  }
  if (value >= 0) ++column.rows[static_cast<std::size_t>(value)];
  const auto number = csv_number<double>(field);
  if (number) {
    ++column.numbers;
    column.sum += *number;
    column.lowest = std::min(column.lowest, *number);
    column.highest = std::max(column.highest, *number);
    column.has_fractions = column.has_fractions || *number != std::floor(*number);
  } else if (is_formatted_number(field)) {
    ++column.formatted;
  } else {
    ++(is_date(field) ? column.dates : column.words);
  }
}

}  // namespace

std::vector<ColumnCounts> ColumnCounts::count(CsvRows rows, std::size_t columns,
                                              std::int64_t first_rows) {
  std::vector<ColumnCounts> counts(columns);
  try {
    for (std::int64_t row = 0; row < first_rows && rows.next(); ++row)
      for (std::size_t i = 0; i < columns && rows.fields().size() == columns; ++i)
        add(counts[i], rows.fields()[i], rows.line());
  } catch (const Error&) {  // rows after misplaced quotes cannot be split
  }
  return counts;
}

ColumnCounts::Kind ColumnCounts::kind() const {
  if (present() == 0) return Kind::empty;
  if (numbers + formatted > dates + words) return Kind::numbers;
  return dates > words ? Kind::dates : Kind::words;
}

ColumnCounts::Kind ColumnCounts::inferred_kind() const {
  const Kind most = kind();
  const std::int64_t others = most == Kind::numbers ? dates + words : present() - dates;
  return most != Kind::empty && 10 * others > present() ? Kind::words : most;
}

bool ColumnCounts::is_distinct() const {
  const bool is_fraction = kind() == Kind::numbers && has_fractions;
  return present() >= kDistinctRows && !is_fraction && std::ssize(values.words()) == present();
}

}  // namespace lockstep::inline v0::data
