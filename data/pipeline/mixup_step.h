// Samples mixed in pairs as the reader of a batch makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "data/sample.h"

namespace lockstep::data {

/// For one thread.
class MixupStep {
 public:
  /// Fills a sample as it is without mixup: from the record that the key names, by its random choices. Returns the id
  /// of the record that it took.
  using Read = std::function<std::int64_t(const SampleKey& key, Sample& sample)>;
  struct Mixed {
    std::int64_t record_id = 0;  ///< of the sample's own record, as it was taken
    std::int32_t partner_label = 0;
    float own_weight = 1;
  };

  /// `pipeline` outlives this object.
  explicit MixupStep(const Pipeline& pipeline) : pipeline_(pipeline) {}

  /// Fills `sample` with the record of `key` mixed with its partner, which is read by the random choices of its own.
  /// What can stay bytes is mixed as bytes, whether
  /// bytes or features are asked for, so that a network sees the same numbers either way.
  Mixed read(const SampleKey& key, Sample& sample, const Read& read);

 private:
  Mixed read_and_mix(const SampleKey& key, Sample& own, const Read& read);

  const Pipeline& pipeline_;
  std::vector<std::uint8_t> own_pixels_;
  std::vector<std::uint8_t> partner_pixels_;
  std::vector<float> partner_features_;
};

}  // namespace lockstep::data
