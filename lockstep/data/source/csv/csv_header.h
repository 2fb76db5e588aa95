// Whether the first row of a table names its columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/source/file_options.h"

namespace lockstep::inline v0::data {

/// The fields of a row.
using CsvFields = std::vector<std::string>;

/// The first row may be a record or the names of the columns: the caller must set `header=`.
class DoubtfulHeader : public Error {
 public:
  using Error::Error;
};

/// Whether a field is a number, such as -1.5e3 or inf.
bool is_number_field(std::string_view field);

/// Whether `first` names the columns of the table `text`, whose separator is in `options`.
///
/// Known names decide first: a name in the options or in the features file `described` that is a
/// field of the row and not a column number. Otherwise words above numbers are names. A row that
/// agrees with the rows below it, up to 1000 of them, is a record. Anything else is doubtful:
///  - words above some of the numbers only, and a table without any numbers;
///  - numbers that no record of such a table would have: 0, 1, ..., n-1; a constant step from
///    column to column, which the rows below do not have; integers above fractions; numbers far
///    outside the range of their columns; a number above words, in quotes above numbers without, or
///    a word that is not among the few of its column.
///
/// Throws DoubtfulHeader (data), which names the reason.
bool is_header(const CsvFields& first, std::string_view text, const std::string& file,
               const CsvOptions& options, const TableSchema& described);

}  // namespace lockstep::inline v0::data
