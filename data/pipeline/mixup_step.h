// Samples mixed in pairs as the reader of a batch makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "data/sample.h"

namespace lockstep::data {

/// For one thread.
class MixupStep {
 public:
  /// Fills a sample as it is without mixup: from the record that the key names, by its random choices. Returns the id
  /// of the record that took its place where that cannot be read.
  using Read = std::function<std::int64_t(const SampleKey& key, Sample& sample)>;
  /// Id of the own record, label of the partner, weight of the own one.
  using Mixed = std::tuple<std::int64_t, std::int32_t, float>;

  /// `pipeline` outlives this object.
  explicit MixupStep(const Pipeline& pipeline) : pipeline_(pipeline) {}

  /// Fills `sample` with the record of `key` mixed with its partner, which is read by the random choices of its own.
  /// What can stay bytes is mixed as bytes, whether
  /// bytes or features are asked for, so that a network sees the same numbers either way.
  Mixed read(const SampleKey& key, Sample& sample, const Read& read);

 private:
  std::pair<std::int32_t, float> mix_in_partner(const SampleKey& key, Sample& own, const Read& read);

  const Pipeline& pipeline_;
  std::vector<std::uint8_t> own_pixels_;
  std::vector<std::uint8_t> partner_pixels_;
  std::vector<float> partner_features_;
};

}  // namespace lockstep::data
