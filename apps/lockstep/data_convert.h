// lockstep data convert.
#pragma once

#include <string>

namespace lockstep::apps {

enum class ConvertSource { idx, csv };

struct ConvertOptions {
  ConvertSource source = ConvertSource::idx;
  std::string input;
  std::string part = "train";
  std::string output;
  int shards = 1;
  std::string compression = "none";
  bool overwrite = false;
};

/// Writes the shards and says so on standard output. Images become raw bytes in `image`, table rows floats in
/// `features`, both with an integer `label`. Throws Error.
void convert_data(const ConvertOptions& options);

}  // namespace lockstep::apps
