// lockstep data inspect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

struct InspectOptions {
  std::vector<std::string> files;  ///< TFRecord files, or data sets as --data takes them
  std::int64_t records = 0;        ///< of each file, at most; 0 for all
  std::string label_feature;       ///< whose values are counted; empty: the usual names
};

/// A table of the files and one of the features, and the number of records of each label, on standard output. Throws
/// Error (data).
void inspect_data(const InspectOptions& options);

}  // namespace lockstep::apps
