#include "lockstep/data/pipeline/mixup.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/image/augmentation.h"
#include "lockstep/data/order/epoch_order.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::data {
namespace {

constexpr int kWeightOne = 1 << 16;

/// Beta(alpha, alpha) by Jöhnk's method ("Erzeugung von betaverteilten und gammaverteilten
/// Zufallszahlen", 1964): two uniform numbers are raised to 1/alpha; the result is the share of one
/// in their sum, if the sum is at most 1. Computed with logarithms, because the powers underflow
/// for a small alpha. The larger power is factored out first: for the smallest alpha even the
/// logarithms are infinite, and their difference would be NaN.
double choose_beta(SampleRandom& random, double alpha) {
  for (;;) {
    const double x = std::log(random.unit() + 0x1p-33);
    const double y = std::log(random.unit() + 0x1p-33);
    const double larger = std::max(x, y);
    const double log_sum =
        std::log(std::exp((x - larger) / alpha) + std::exp((y - larger) / alpha));
    if (larger / alpha + log_sum <= 0) return std::exp((x - larger) / alpha - log_sum);
  }
}

}  // namespace

void check_mixup(double alpha) {
  if (!(alpha > 0 && alpha <= 4))
    throw Error(ErrorCategory::input, "mixup", "expected an alpha above 0 and up to 4",
                fmt::format("got {}", alpha));
}

Mixup choose_mixup(const SampleKey& key, std::int64_t records, double alpha) {
  check_mixup(alpha);
  const Permutation partners(
      random_key(key.seed, "mixup partners", static_cast<std::uint64_t>(key.epoch)), records);
  SampleRandom random("mixup", key);
  const double weight = choose_beta(random, alpha);
  // Rounded to a precision far coarser than the differences between libm implementations.
  return {partners[key.record_id],
          static_cast<float>(std::lround(weight * kWeightOne)) / kWeightOne};
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
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = weight * pixels[i] + other * partner[i];
}

MixupStep::MixupStep(const Pipeline& pipeline)
    : pipeline_(pipeline),
      own_memory_(pipeline.spec, 1, pipeline.keeps_pixels()),
      own_(own_memory_.sample()),
      partner_memory_(pipeline.spec, 1, pipeline.keeps_pixels()),
      partner_(partner_memory_.sample()) {}

MixupStep::Mixed MixupStep::read(const SampleKey& key, Sample& sample, const Read& read) {
  if (!pipeline_.keeps_pixels() || !sample.pixels().empty()) return read_and_mix(key, sample, read);
  const Mixed mixed = read_and_mix(key, own_, read);
  pixels_to_features(own_.pixels(), pipeline_.pixel_normalization(), sample.features());
  sample.label() = own_.label();
  return mixed;
}

MixupStep::Mixed MixupStep::read_and_mix(const SampleKey& key, Sample& own, const Read& read) {
  Mixed mixed = {.record_id = read(key, own)};
  mixed.partner_label = own.label();
  const Mixup mixup = choose_mixup(key, pipeline_.source->size(), pipeline_.mixup_alpha);
  if (mixup.partner == key.record_id || mixup.weight == 1) return mixed;  // the sample is unchanged
  read({key.seed, key.epoch, mixup.partner}, partner_);
  if (own.pixels().empty())
    mix(own.features(), partner_.features(), mixup.weight);
  else
    mix(own.pixels(), partner_.pixels(), mixup.weight);
  mixed.partner_label = partner_.label();
  mixed.own_weight = mixup.weight;
  return mixed;
}

}  // namespace lockstep::inline v0::data
