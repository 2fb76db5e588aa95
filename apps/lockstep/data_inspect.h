// Minimum and maximum of a set of values.
#pragma once

#include <fmt/format.h>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Minimum and maximum of the added values.
template <typename T>
struct ValueExtent {
  T lowest = std::numeric_limits<T>::max();
  T highest = std::numeric_limits<T>::lowest();

  void add(T value) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  /// "-2 to 1.5", "7", or "-" if no value was added.
  std::string text() const {
    if (lowest > highest) return "-";
    return lowest == highest ? fmt::format("{}", lowest) : fmt::format("{} to {}", lowest, highest);
  }
};

// lockstep data inspect for data sets other than TFRecord files.

/// Whether `argument` of `data inspect` is a data set in the syntax of --data rather than TFRecord files: a table,
/// folders of images, IDX files, or synthetic data.
bool is_inspected_by_source(const std::string& argument);

/// Reads at most `records` records (0: all) of the data set `argument`, and prints its features or the formats and
/// sizes of its images, and the number of records per class. Throws Error.
void inspect_source(const std::string& argument, std::int64_t records);

/// Prints the number of records per label, with class names if they are known.
void print_label_counts(const std::string& label, const std::map<std::int64_t, std::int64_t>& counts,
                        const std::map<std::int64_t, std::string>& names);

// lockstep data inspect.

struct InspectOptions {
  std::vector<std::string> files;  ///< TFRecord files, or data sets as --data takes them
  std::int64_t records = 0;        ///< maximum number of records per file; 0 for all
  std::string label_feature;       ///< feature whose values are counted; empty: the usual names
};

/// Prints the files, a table of the features, and the number of records per label on standard output. Throws Error
/// (data).
void inspect_data(const InspectOptions& options);

}  // namespace lockstep::apps
