// Synthetic images with learnable labels, for tests and benchmarks without files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/sample.h"

namespace lockstep::data {

struct SyntheticOptions {
  std::vector<std::int64_t> shape;
  std::int64_t classes = 0;
  std::int64_t count = 0;
  std::uint64_t seed = 1;
  std::string part = "train";  ///< other parts have different samples of the same classes
  bool images = false;         ///< uint8 images, a quarter of the bytes: shape [H, W, C] with 1 to 4 channels
};

/// A sample is the mean of its class's pattern and noise, both in [0, 1): a pure function of (seed, part, record id).
/// Patterns and noise come from small tables filled once, so that generating samples costs little more than writing
/// them. Images have the same values, rounded down to 256 levels.
class SyntheticSource final : public RecordSource {
 public:
  /// Throws Error (input) for a shape, class count or record count that is not positive, or a shape that is not valid
  /// for images.
  explicit SyntheticSource(const SyntheticOptions& options);

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return count_; }
  bool has_images() const override { return !pixel_patterns_.empty(); }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::string description() const override;

 private:
  SampleSpec spec_;
  std::int64_t count_;
  std::uint64_t record_key_;
  std::size_t pattern_size_;
  std::vector<float> patterns_;               // [classes, pattern_size_], repeated over the features
  std::vector<float> noise_;                  // read cyclically, starting at a position that depends on the record
  std::vector<std::uint8_t> pixel_patterns_;  // both for images, instead of the two above
  std::vector<std::uint8_t> pixel_noise_;
};

}  // namespace lockstep::data
