#include "lockstep/onnx/export/activation_range.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "lockstep/base/enum_names.h"

namespace lockstep::inline v0::onnx {
namespace {

constexpr double kLevels = 255;  // intervals of uint8
constexpr double kCut = 0.0001;  // fraction of the values cut at each end

/// Kullback-Leibler divergence of the first `bins` of `counts`, quantized to `levels` integers,
/// from the clamped values. Each integer spreads its count evenly over its bins that are not empty.
double divergence(std::span<const std::int64_t> counts, std::int64_t bins, std::int64_t levels) {
  constexpr double kNone = 1e-6;  // replaces a count of 0 where the clamped values have some
  const auto size = static_cast<std::size_t>(bins);
  const auto kept = counts.first(size);
  const auto clamped = counts.subspan(size);
  const std::int64_t outside = std::accumulate(clamped.begin(), clamped.end(), std::int64_t{0});
  const std::int64_t inside = std::accumulate(kept.begin(), kept.end(), std::int64_t{0});
  const auto values_in = [&](std::size_t bin) {
    return static_cast<double>(kept[bin] + (bin + 1 == size ? outside : 0));
  };
  const auto all = static_cast<double>(inside + outside);
  double sum = 0;
  double shared_sum = 0;
  for (std::int64_t level = 0; level < levels; ++level) {
    const auto begin = static_cast<std::size_t>(level * bins / levels);
    const auto end = static_cast<std::size_t>((level + 1) * bins / levels);
    std::int64_t total = 0;
    std::int64_t used = 0;
    for (std::size_t bin = begin; bin < end; ++bin) {
      total += kept[bin];
      if (values_in(bin) > 0) ++used;
    }
    if (used == 0) continue;
    const double shared = std::max(static_cast<double>(total) / static_cast<double>(used), kNone);
    for (std::size_t bin = begin; bin < end; ++bin) {
      const double values = values_in(bin);
      if (values == 0) continue;
      sum += values * std::log(values / shared);
      shared_sum += shared;
    }
  }
  // sum of p / P * log((p / P) / (q / Q))
  return sum / all + std::log(shared_sum / all);
}

}  // namespace

model::FakeQuantizeFunction rounding_to_uint8(const ActivationRange& range) {
  const double width = double{range.high} - double{range.low};
  const auto scale = static_cast<float>(width / kLevels);
  if (!(scale >= std::numeric_limits<float>::min()))
    return {.scale = 1, .zero_point = 0, .dtype = model::Int8Type::uint8};
  const double zero = std::nearbyint(-double{range.low} / double{scale});
  return {.scale = scale,
          .zero_point = static_cast<int>(std::clamp(zero, 0.0, kLevels)),
          .dtype = model::Int8Type::uint8};
}

bool ActivationHistogram::add(std::span<const float> values) {
  float lowest = 0;
  float highest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  lowest_ = std::min(lowest_, lowest);
  highest_ = std::max(highest_, highest);
  const double largest = std::max(-double{lowest}, double{highest});
  if (largest >= limit_) grow(largest);
  const double bins_per_unit = limit_ > 0 ? static_cast<double>(kBins) / limit_ : 0;
  for (const float value : values) {
    if (value == 0) {
      ++zeros_;
      continue;
    }
    const auto bin = static_cast<std::size_t>(std::abs(double{value}) * bins_per_unit);
    ++(value < 0 ? below_ : above_)[bin];
  }
  return true;
}

/// Doubles the width of the bins until `largest` is below the limit.
void ActivationHistogram::grow(double largest) {
  if (largest == 0) return;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  const double needed = std::ldexp(1.0, exponent);
  if (limit_ == 0) limit_ = needed;
  for (; limit_ < needed; limit_ *= 2) {
    for (Counts* const counts : {&below_, &above_}) {
      for (std::size_t bin = 0; bin < kBins / 2; ++bin)
        (*counts)[bin] = (*counts)[2 * bin] + (*counts)[2 * bin + 1];
      std::fill(counts->begin() + kBins / 2, counts->end(), 0);
    }
  }
}

ActivationRange ActivationHistogram::range(Calibration calibration) const {
  const ActivationRange all{.low = lowest_, .high = highest_};
  if (limit_ == 0 || calibration == Calibration::min_max) return all;
  if (calibration == Calibration::percentile) return percentile();
  const auto limit = static_cast<float>(threshold());
  return {.low = std::max(all.low, -limit), .high = std::min(all.high, limit)};
}

ActivationRange ActivationHistogram::percentile() const {
  std::int64_t total = zeros_;
  for (const Counts* const counts : {&below_, &above_})
    total = std::accumulate(counts->begin(), counts->end(), total);
  const auto cut = static_cast<std::int64_t>(kCut * static_cast<double>(total));
  // The edge above the bins that hold all but `cut` of the values of one sign.
  const auto edge = [&](const Counts& counts) {
    std::int64_t outside = 0;
    std::size_t bin = kBins;
    while (bin > 0 && outside + counts[bin - 1] <= cut) outside += counts[--bin];
    return static_cast<float>(static_cast<double>(bin) * limit_ / kBins);
  };
  return {.low = std::max(lowest_, 0.0f - edge(below_)), .high = std::min(highest_, edge(above_))};
}

/// The magnitude above which values are clamped. The value 0 does not count: an integer represents
/// it exactly, and most values after a ReLU are 0.
double ActivationHistogram::threshold() const {
  Counts magnitudes(kBins);
  std::ranges::transform(below_, above_, magnitudes.begin(), std::plus<>());
  // The integers of each sign.
  const std::int64_t levels = lowest_ < 0 && highest_ > 0 ? 128 : 256;
  std::int64_t best = kBins;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t bins = kBins; bins >= levels; --bins) {
    const double found = divergence(magnitudes, bins, levels);
    if (found >= least) continue;
    least = found;
    best = bins;
  }
  return static_cast<double>(best) * limit_ / static_cast<double>(kBins);
}

}  // namespace lockstep::inline v0::onnx
