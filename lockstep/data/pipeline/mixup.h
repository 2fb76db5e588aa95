// Samples mixed in pairs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// What one sample is mixed with: it keeps `weight` of its pixels and of its label, the record `partner` gives the rest
/// (Zhang et al., "mixup: Beyond empirical risk minimization", 2018). The loss is `weight` times that of the own label
/// and 1 - `weight` times that of the partner's.
struct Mixup {
  std::int64_t partner = 0;
  float weight = 1;  ///< a multiple of 2^-16
};

/// Throws Error (input) unless 0 < alpha <= 4.
void check_mixup(double alpha);

/// The partner and the weight, Beta(alpha, alpha), of the record of `key` among `records`. A pure function of the key:
/// the partner comes from the whole epoch and not from the batch or the replica's part of it, so the choice is the same
/// for every number of replicas. Every record is a partner exactly once an epoch. Throws Error (input) unless
/// 0 < alpha <= 4.
Mixup choose_mixup(const SampleKey& key, std::int64_t records, double alpha);

/// pixels = weight * pixels + (1 - weight) * partner, bytes rounded to the nearest. Spans of one size.
void mix(std::span<std::uint8_t> pixels, std::span<const std::uint8_t> partner, float weight);
void mix(std::span<float> pixels, std::span<const float> partner, float weight);

// Samples mixed in pairs as the reader of a batch makes them.

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
