#include "data/image/mixup.h"

#include <fmt/format.h>

#include <cmath>

#include "data/image/sample_random.h"
#include "data/order/permutation.h"
#include "device/error.h"
#include "device/random.h"

namespace lockstep::data {
namespace {

constexpr int kWeightOne = 1 << 16;

/// Beta(alpha, alpha) by Jöhnk's method ("Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", 1964): of
/// two uniform numbers raised to 1/alpha, the share of one in their sum, where that is at most 1. In logarithms,
/// because the powers of a small alpha have no floating-point numbers, and with the larger power taken out first: of
/// the smallest alpha even the logarithms are infinite, and their difference would be no number.
double choose_beta(SampleRandom& random, double alpha) {
  for (;;) {
    const double x = std::log(random.unit() + 0x1p-33);
    const double y = std::log(random.unit() + 0x1p-33);
    const double larger = std::max(x, y);
    const double log_sum = std::log(std::exp((x - larger) / alpha) + std::exp((y - larger) / alpha));
    if (larger / alpha + log_sum <= 0) return std::exp((x - larger) / alpha - log_sum);
  }
}

}  // namespace

void check_mixup(double alpha) {
  if (!(alpha > 0 && alpha <= 4))
    throw Error(ErrorCategory::input, "mixup", "needed an alpha above 0 and up to 4", fmt::format("got {}", alpha));
}

Mixup choose_mixup(const SampleKey& key, std::int64_t records, double alpha) {
  check_mixup(alpha);
  const Permutation partners(device::random_key(key.seed, "mixup partners", static_cast<std::uint64_t>(key.epoch)),
                             records);
  SampleRandom random("mixup", key);
  const double weight = choose_beta(random, alpha);
  // Rounded to what is far coarser than libm's differences between machines.
  return {partners[key.record_id], static_cast<float>(std::lround(weight * kWeightOne)) / kWeightOne};
}

void mix(std::span<std::uint8_t> pixels, std::span<const std::uint8_t> partner, float weight) {
  LOCKSTEP_CHECK_OP(pixels.size(), ==, partner.size());
  const int own = static_cast<int>(std::lround(weight * kWeightOne));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const int mixed = pixels[i] * own + partner[i] * (kWeightOne - own);
    pixels[i] = static_cast<std::uint8_t>((mixed + kWeightOne / 2) / kWeightOne);
  }
}

void mix(std::span<float> pixels, std::span<const float> partner, float weight) {
  LOCKSTEP_CHECK_OP(pixels.size(), ==, partner.size());
  const float other = 1 - weight;
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = weight * pixels[i] + other * partner[i];
}

}  // namespace lockstep::data
