// Contents of the columns of a table, for messages and `lockstep data inspect`.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/table/csv_rows.h"
#include "lockstep/data/table/word_table.h"

namespace lockstep::inline v0::data {

/// Minimum number of rows whose integers or words all differ, for a column that only numbers or
/// names the rows; and for treating words of one row as unknown.
inline constexpr std::int64_t kDistinctRows = 20;

/// Counts of the fields of a column, independent of its use.
struct ColumnCounts {
  /// What most of the fields are.
  enum class Kind { empty, numbers, dates, words };

  std::int64_t numbers = 0;
  std::int64_t formatted = 0;  ///< numbers in a form that is not read (is_formatted_number)
  std::int64_t dates = 0;
  std::int64_t words = 0;
  std::int64_t missing = 0;
  std::int64_t first_missing = 0;  ///< line of the first one
  bool has_fractions = false;      ///< some number is not an integer
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -std::numeric_limits<double>::infinity();
  double sum = 0;         ///< sum of the numbers
  WordTable values = {};  ///< the first kMaxValues fields that differ and are not missing
  std::vector<std::int64_t> rows = {};  ///< [values] rows that have this value

  static constexpr std::size_t kMaxValues = 10'000;

  /// Counts the columns of the first rows that have `columns` fields, up to misplaced quotes.
  static std::vector<ColumnCounts> count(
      CsvRows rows, std::size_t columns,
      std::int64_t first_rows = std::numeric_limits<std::int64_t>::max());

  Kind kind() const;
  /// What a training takes the column for: what at least 90 % of the fields are, or words.
  Kind inferred_kind() const;
  std::int64_t present() const { return numbers + formatted + dates + words; }
  /// Whether the fields are integers or words, at least kDistinctRows, that are all different: the
  /// column may only number or name the rows.
  bool is_distinct() const;
};

}  // namespace lockstep::inline v0::data
