// The meaning of the columns of a table, and the statistics and values learned from a training
// table.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/table/window.h"

namespace lockstep::inline v0::data {

/// The word of all missing values in a vocabulary.
inline constexpr std::string_view kMissingWord = "NA";

/// How numbers are scaled: not at all; to mean 0 and standard deviation 1; or to 0 .. 1. The
/// statistics are those of the training table.
enum class ColumnScale { none, standard, minmax };
ColumnScale parse_scale(std::string_view name);  ///< throws Error (input)

/// Whether the number is not infinite as a float.
inline bool fits_float(double number) { return std::abs(number) < 0x1.ffffffp127; }

/// How missing numbers are read.
struct MissingValues {
  /// The rules, named as in missing=.
  enum class Rule {
    error,      ///< an error
    mean,       ///< the mean of the column, as sklearn's SimpleImputer
    indicator,  ///< the mean; a column with missing numbers has a second feature, 1 or 0
    value,      ///< `value`
  };
  Rule rule = Rule::error;  ///< how missing numbers are handled
  double value = 0;         ///< for Rule::value

  /// Parses "error", "mean", "indicator" or a number. Throws Error (input).
  static MissingValues parse(std::string_view text);
  bool operator==(const MissingValues&) const = default;
};

/// The part of a date that is the number. days: since 1970-01-01; month: 1 to 12; weekday: 0
/// (Monday) to 6.
enum class DatePart { none, days, year, month, weekday };

/// How a category becomes features.
enum class CategoryOutput {
  one_hot,    ///< a feature per category: 1 for the row's, else 0
  multi_hot,  ///< one_hot for fields with several values, split at `separator`
  index,      ///< no features: the category is an int32 input, for an Embedding
};

/// Features from one column, or from several crossed ones.
struct TableFeature {
  /// The contents of the columns and their use.
  enum class Kind { numeric, bucketized, categorical, hashed, crossed };

  Kind kind = Kind::numeric;              ///< the contents of the columns
  std::vector<std::string> columns = {};  ///< one; of a crossed feature, at least two

  // Numbers (numeric, bucketized), in this order.
  DatePart date = DatePart::none;         ///< the field is a date (ISO 8601), not a number
  MissingValues missing = {};             ///< bucketized: mean is not available
  std::optional<double> lowest = {};      ///< smaller numbers become this one
  std::optional<double> highest = {};     ///< larger numbers become this one
  bool log = false;                       ///< log(1 + x)
  ColumnScale scale = ColumnScale::none;  ///< (x - offset) / divisor; 0 if the divisor is 0
  std::vector<double> boundaries = {};    ///< between n + 1 buckets; each includes its lower one

  // Words.
  std::vector<std::string> vocabulary = {};  ///< the categories, in the order of their numbers
  std::int64_t buckets = 0;                  ///< number of hashed or crossed categories
  bool unknown_column = false;               ///< one more category, for unknown words
  CategoryOutput output = CategoryOutput::one_hot;  ///< how a word becomes features
  char separator = '|';                             ///< for multi_hot

  // Learned from the training table.
  bool is_learned = false;     ///< whether the members below and `vocabulary` are set
  double offset = 0;           ///< the mean, or the smallest number
  double divisor = 1;          ///< the standard deviation of the population, or the range
  double fill = 0;             ///< the unscaled mean, for missing numbers
  bool has_indicator = false;  ///< `missing` is indicator, and numbers were missing

  /// Whether the column has numbers or dates, not words.
  bool has_numbers() const { return kind == Kind::numeric || kind == Kind::bucketized; }
  /// Whether all words are true and false, or yes and no.
  bool has_flags() const;
  /// Whether the number of the field is scaled directly.
  bool is_plain() const {
    return kind == Kind::numeric && date == DatePart::none && !lowest && !highest && !log;
  }
  /// Whether it is a separate input, the number of a category.
  bool is_index() const { return !has_numbers() && output == CategoryOutput::index; }
  std::int64_t categories() const;  ///< number of categories; not for numeric features
  std::int64_t values() const;      ///< categories without that of unknown words
  /// Number of floats of the sample: 1, one more with an indicator, or one per category; 0 for an
  /// index.
  std::int64_t width() const;
  bool operator==(const TableFeature&) const = default;
};

/// Counts of the rows of a table, for its description.
struct TableCounts {
  std::int64_t rows = 0;                   ///< without the header
  std::vector<std::int64_t> missing = {};  ///< [features] rows without a value; else empty
  /// [features] rows with a word that the training table lacks; else empty
  std::vector<std::int64_t> unknown = {};
  std::vector<std::int64_t> classes = {};  ///< rows of each class; empty if it is not known
  /// Columns of features, or of labels, whose integers or words are all different.
  std::vector<std::string> distinct = {};
  std::vector<std::string> unnamed = {};      ///< feature columns that the header does not name
  std::vector<std::string> identifiers = {};  ///< columns that were left out as identifiers
  std::vector<std::string> empty = {};        ///< columns that were left out without values
  bool operator==(const TableCounts&) const = default;
};

/// The meaning of a table. Without the names of all columns it is the content of a features file,
/// whose missing parts a CsvSource learns.
struct TableSchema {
  /// Largest number of buckets, and of features.
  static constexpr std::int64_t kMaxFeatures = 1'000'000;

  std::vector<std::string> columns = {};  ///< columns of the training table, in file order
  bool has_header = false;  ///< the columns have the names of a header; else their numbers
  std::vector<std::string> left_out = {};     ///< columns that are ignored
  std::vector<TableFeature> features = {};    ///< in the order of the sample's
  std::string label = {};                     ///< the column of classes; empty: there are targets
  std::vector<std::string> targets = {};      ///< columns of regression targets
  std::vector<std::string> class_names = {};  ///< by class number; empty: unknown
  bool labels_are_words = false;              ///< the labels are class names
  std::int64_t classes = 0;  ///< number of classes; 0: unknown, or there are targets
  TableWindow window = {};   ///< how many rows are a sample
  TableCounts counts = {};   ///< counts of the table that was read

  /// Throws Error (`input` for a features file, `checkpoint` for a stored schema) that names the
  /// feature and the key, for anything that to_json() does not write. `where` is for the message.
  static TableSchema from_file(const std::string& path);
  /// Parses a schema that to_json() wrote, with the same errors.
  static TableSchema from_checkpoint(const nlohmann::json& json, const std::string& where);
  nlohmann::json to_json() const;  ///< what from_checkpoint() reads

  /// Whether samples have the same meaning. Statistics may differ in their last digits, as on two
  /// machines.
  bool agrees_with(const TableSchema& other) const;
  /// ", 4 columns standardized"; empty if nothing is scaled.
  std::string preparation() const;
  /// "age (mean 33, deviation 12.5), ..." for the first standardized columns; empty if there are
  /// none.
  std::string statistics() const;
  /// How the table was read, as lines: "200 rows below a header", "numbers: age (3 missing: mean
  /// 33)", "words: city (4 values)", "label bought: no (120), yes (80)", "left out: id". With
  /// `trained`, the schema of the training table, only the columns that have missing or unknown
  /// values are named.
  std::vector<std::string> summary(const TableSchema* trained = nullptr) const;
  /// The summary as an object, for programs.
  nlohmann::json summary_json() const;
  /// What was assumed of a readable table, and its possible problems: columns that only number the
  /// rows; with `trained`, more unknown values than in the training.
  std::vector<std::string> warnings(const TableSchema* trained = nullptr) const;
  bool operator==(const TableSchema&) const = default;

 private:
  /// "4 values, 3 missing" of a feature, in the summary; empty if there is nothing to note.
  std::string notes(std::size_t index, bool is_training) const;
};

}  // namespace lockstep::inline v0::data
