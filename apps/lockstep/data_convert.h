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
  std::uint64_t seed = 1;  ///< of the order of images
  bool overwrite = false;
};

/// Writes the shards and says so on standard output. Images become raw bytes in `image`, table rows floats in
/// `features`, both with an integer `label`; JPEG and PNG files stay what they are, in `image/encoded`, in an order
/// that mixes the classes. Throws Error.
void convert_data(const ConvertOptions& options);

}  // namespace lockstep::apps
