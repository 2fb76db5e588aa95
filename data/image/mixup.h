// Samples mixed in pairs.
#pragma once

#include <cstdint>
#include <span>

#include "data/sample.h"

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

}  // namespace lockstep::data
