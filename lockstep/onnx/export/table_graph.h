// Makes the features of a table in the graph, from its columns as they are. Internal to this
// module: see Preprocessing in export.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/table/schema.h"
#include "lockstep/onnx/export/graph_builder.h"

namespace lockstep::inline v0::onnx {

/// Adds inputs for the columns of a table to a graph, and the operators that make features of them:
/// one float32 array [batch, columns] for all columns of numbers, and for each column of words a
/// string [batch], for each of dates an int64 [batch], the seconds since 1970.
class TableGraph {
 public:
  /// Both must outlive it. Throws Error (input) that names a feature for which standard operators
  /// do not suffice.
  TableGraph(GraphBuilder& graph, const data::TableSchema& table);

  /// The number of features, without indices.
  std::int64_t width() const { return width_; }
  /// Adds the operators of all features, which are called NAME/…, and the input NAME of numbers.
  /// Returns the value [batch, width()]. Throws Error (input).
  std::string features(std::string_view name);
  /// Adds the operators of the int32 input `name` of the network, [batch]; nullopt if it is not one
  /// of the table.
  std::optional<std::string> index(std::string_view name);

 private:
  using Feature = data::TableFeature;

  /// A value [batch, n], and where its columns are among the features.
  struct Block {
    std::string value;
    std::vector<std::int64_t> positions;
  };

  std::string input(std::string_view column, TensorType type);
  std::string column(const Feature& feature);
  std::string seconds(const Feature& feature);
  std::string date(const Feature& feature, std::int64_t shift);
  std::string date_part(const Feature& feature, const std::string& seconds);
  std::string prepared(const Feature& feature, std::string value);
  std::string is_missing(const std::string& value, std::string_view name);
  std::string replaced(const std::string& condition, float number, const std::string& value,
                       std::string_view name);
  std::string as_float(const std::string& value, std::string_view name);
  std::string joined(const std::vector<std::string>& values, std::string_view name);

  void add_numbers(std::string_view name, std::vector<Block>& blocks);
  std::string raw_numbers(std::string_view name, const std::vector<const Feature*>& numbers);
  std::string scaled(std::string_view name, std::string value,
                     const std::vector<const Feature*>& numbers);
  std::string buckets(const Feature& feature);
  std::string words(const Feature& feature);
  std::string unknown(const Feature& feature, const std::string& words);

  GraphBuilder& graph_;
  const data::TableSchema& table_;
  std::int64_t width_ = 0;
  std::vector<std::string> columns_;           // those in the input of numbers
  std::string numbers_;                        // that input
  std::map<std::string, std::string> inputs_;  // words and dates [batch, 1] by column
};

}  // namespace lockstep::inline v0::onnx
