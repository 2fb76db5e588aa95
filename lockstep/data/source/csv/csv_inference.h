// What the columns of a training table are, where neither options nor a features file say it.
#pragma once

#include "lockstep/data/source/csv/csv_layout.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::data {

/// Determines the kinds of the layout's plain columns, and removes those that are no features:
///
/// - columns without values;
/// - identifiers, whose values all differ, in at least kDistinctRows rows: words; integers that
///   count the rows, which are from 0 to less than 4 times the number of rows, or whose column is
///   called "id" or "...Id"; and a column without a name that has the numbers of the rows, of any
///   number of rows. Other integers, such as years, times and amounts, are numbers.
///
/// Columns in `options.columns` and `options.keep` are features in any case, as are identifiers if
/// no other feature is left. Kinds are those of the first 10,000 rows. `rows` begins below the
/// header.
void infer_columns(CsvLayout& layout, const CsvRows& rows, const CsvOptions& options);

}  // namespace lockstep::inline v0::data
