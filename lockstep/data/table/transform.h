// Conversion of table fields to features. A row is stored as one float per feature of the schema:
// its number, category number, or number of a set of categories (multi_hot).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/table/schema.h"

namespace lockstep::inline v0::data {

/// The stored value of a row that has none of the categories: all its features are 0.
inline constexpr double kNoCategory = -1;

/// "width", "age missing", "age<18", "color=red", "color unknown", "city#3"; for an index, the name
/// of its input: "city", "city x color".
std::vector<std::string> names_of(const TableFeature& feature);

/// The category of a hashed word, the same on every machine.
std::int64_t hash_bucket(std::string_view word, std::int64_t buckets);
/// The part of a date as in 2026-11-24, 2026/11/24, 24.11.2026, 2026-11-24T10:30:00Z or 2026-11-24
/// 10:30; nullopt for anything else. days counts the time of day as a fraction.
std::optional<double> date_number(std::string_view field, DatePart part);

/// A number before it is scaled: clipped, its logarithm, or its bucket. NaN (missing) stays NaN, or
/// is kNoCategory. Infinite or NaN for a logarithm that does not exist.
double prepared(const TableFeature& feature, double number);
/// Computes scales, means and indicators from the prepared numbers of all rows, `rows` [N,
/// features], for features that have not learned them. Throws Error (data), which names `table`,
/// for a column without numbers that requires their mean.
void learn_statistics(TableSchema& schema, std::span<const double> rows, const std::string& table);
/// Tolerated error of rounding an unscaled number to float32, as a fraction of the deviation of its
/// column.
inline constexpr double kToleratedRounding = 1e-5;
/// Throws Error (data), which names `table`, for an unscaled column that loses digits as float32:
/// if different numbers become equal, and the errors exceed kToleratedRounding of the deviation.
/// `rows` are as above, `targets` [N, targets].
void check_precision(const TableSchema& schema, std::span<const double> rows,
                     std::span<const double> targets, const std::string& table);
/// The stored value of a prepared number: scaled and filled in; NaN if an indicator reports it.
float stored_value(const TableFeature& feature, double prepared_number);
/// Writes the width() features of a stored value. Not for an index or multi_hot.
void expand(const TableFeature& feature, float stored, std::span<float> features);

}  // namespace lockstep::inline v0::data
