// The meaning of the columns of a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/data/source/file_options.h"

namespace lockstep::inline v0::data {

/// The columns of features, label and targets of a table, determined from its first rows and the
/// options.
struct CsvLayout {
  bool has_header = false;         ///< the first row is not a record
  bool has_names = false;          ///< it names the columns
  std::vector<std::string> names;  ///< names of all columns: the header's, or their numbers from 1
  std::unordered_map<std::string, std::size_t> numbers;  ///< column of each name, from 0
  std::vector<std::size_t> features;                     ///< feature columns, from 0, each once
  std::vector<std::size_t> plain;     ///< feature columns that no schema describes
  std::vector<std::size_t> targets;   ///< columns of regression targets
  std::optional<std::size_t> label;   ///< set if there are no targets
  std::optional<std::size_t> series;  ///< column of series names
  TableWindow window = {};            ///< from the options and the known schema
  std::vector<bool> is_categorical;   ///< for all columns
  std::vector<bool> is_date;          ///< for all columns: infer_columns() found dates
  /// For all columns: it is categorical because infer_columns() found words.
  std::vector<bool> is_inferred_word;
  std::vector<std::size_t> identifiers;  ///< columns that infer_columns() left out
  std::vector<std::size_t> empty;        ///< those that it left out as they have no values
  /// Columns whose name is empty in the header, or that pandas called "Unnamed: 0" for that reason.
  std::vector<std::size_t> unnamed;
  /// Class names in a header "120,4,setosa,versicolor,virginica".
  std::vector<std::string> classes;
  std::int64_t announced_records = 0;  ///< number of records stated by such a header; 0: not stated

  /// `known`: the schema of the training table or of a features file, or null. `origin` names the
  /// training table. If that has a header, columns are found by their names, else by their
  /// position. Throws Error (data) for an ambiguous file (DoubtfulHeader) and for one that lacks
  /// columns of the training table, Error (input) for options that do not match it.
  static CsvLayout detect(std::string_view text, const std::string& file, const CsvOptions& options,
                          const TableSchema* known = nullptr, const std::string& origin = {});

  /// The column of this name or number; nullopt if there is none.
  std::optional<std::size_t> find(const std::string& name) const;
  /// The names of the columns that are not read.
  std::vector<std::string> left_out() const;
};

}  // namespace lockstep::inline v0::data
