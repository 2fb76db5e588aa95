// lockstep data convert.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

enum class ConvertSource { idx, csv, images };

struct ConvertOptions {
  ConvertSource source = ConvertSource::idx;
  std::string input;
  std::string part = "train";
  std::string output;
  int shards = 1;
  std::string compression = "none";
  std::uint64_t seed = 1;  ///< seed of the order of images
  bool overwrite = false;
};

/// Writes the shards and prints a summary on standard output. IDX images become raw bytes in `image`, table rows become
/// floats in `features`, both with an integer `label`. JPEG and PNG files are copied unchanged to `image/encoded`, in
/// an order that mixes the classes. Throws Error.
void convert_data(const ConvertOptions& options);

}  // namespace lockstep::apps
