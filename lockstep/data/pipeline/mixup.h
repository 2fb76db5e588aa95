// Mixup of samples.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lockstep/data/pipeline/pipeline.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/sample.h"

namespace lockstep::inline v0::data {

/// The mixup of one sample: it keeps `weight` of its pixels and label; the record `partner`
/// contributes the rest (Zhang et al., "mixup: Beyond empirical risk minimization", 2018). The loss
/// is `weight` times the loss for the own label plus 1 - `weight` times the loss for the partner's
/// label.
struct Mixup {
  std::int64_t partner = 0;
  float weight = 1;  ///< a multiple of 2^-16
};

/// Throws Error (input) unless 0 < alpha <= 4.
void check_mixup(double alpha);

/// Chooses the partner and the weight, Beta(alpha, alpha), for the record of `key` among `records`.
/// A pure function of the key: the partner comes from the whole epoch, not from the batch or the
/// replica's part of it, so the choice is the same for any number of replicas. Every record is a
/// partner exactly once per epoch. Throws Error (input) unless 0 < alpha <= 4.
Mixup choose_mixup(const SampleKey& key, std::int64_t records, double alpha);

/// pixels = weight * pixels + (1 - weight) * partner, bytes rounded to nearest. The spans have the
/// same size.
void mix(std::span<std::uint8_t> pixels, std::span<const std::uint8_t> partner, float weight);
void mix(std::span<float> pixels, std::span<const float> partner, float weight);

// Mixup as applied by the batch reader.

/// Not thread-safe.
class MixupStep {
 public:
  /// Fills a sample without mixup, from the record of the key and with its random choices. Returns
  /// the id of the record used.
  using Read = std::function<std::int64_t(const SampleKey& key, Sample& sample)>;
  struct Mixed {
    std::int64_t record_id = 0;  ///< id of the sample's own record
    std::int32_t partner_label = 0;
    float own_weight = 1;
  };

  /// `pipeline` must outlive this object.
  explicit MixupStep(const Pipeline& pipeline);

  /// Fills `sample` with the record of `key` mixed with its partner; the partner uses its own
  /// random choices. Samples that can stay bytes are mixed as bytes, whether bytes or features are
  /// requested, so that a network sees the same numbers in both cases.
  Mixed read(const SampleKey& key, Sample& sample, const Read& read);

 private:
  Mixed read_and_mix(const SampleKey& key, Sample& own, const Read& read);

  const Pipeline& pipeline_;
  Batch own_memory_;  // one sample, whose pixels become features afterwards
  Sample own_;
  Batch partner_memory_;
  Sample partner_;
};

}  // namespace lockstep::inline v0::data
