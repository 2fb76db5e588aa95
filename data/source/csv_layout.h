// What the columns of one table mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/source/csv_options.h"
#include "data/source/csv_rows.h"

namespace lockstep::data {

/// The number that a field is, and nothing else.
template <typename Number>
std::optional<Number> csv_number(std::string_view field);

/// Where a table's features, label and targets are: its first rows, seen with the options.
struct CsvLayout {
  bool has_header = false;             ///< the first row is none of the records
  std::vector<std::string> names;      ///< of all columns: the header's, or their numbers from 1
  std::vector<std::size_t> features;   ///< columns, from 0
  std::vector<std::size_t> targets;    ///< of a regression
  std::optional<std::size_t> label;    ///< where there are no targets
  std::vector<bool> is_categorical;    ///< of all columns
  std::vector<std::string> classes;    ///< names in a header "120,4,setosa,versicolor,virginica"
  std::int64_t announced_records = 0;  ///< by such a header; 0: none is

  /// Throws Error (data) for a file of which it cannot tell, Error (input) for options that do not fit it.
  static CsvLayout of(std::string_view text, const std::string& file, const CsvOptions& options);
};

}  // namespace lockstep::data
