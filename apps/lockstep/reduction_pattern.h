// Values whose sum over all replicas is known without adding them up.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "apps/lockstep/element_types.h"

namespace lockstep::apps {

/// Element i of replica r is (r + i) mod period: small integers, so that their sum is exact in every type, whatever the
/// order of the additions. With 16-bit floats and hundreds of replicas it is not; then one rounding a replica is
/// allowed.
template <typename T>
class ReductionPattern {
 public:
  explicit ReductionPattern(int replicas)
      : period_(period_for(replicas)), expected_(static_cast<std::size_t>(period_)), replicas_(replicas) {
    for (int i = 0; i < period_; ++i)
      for (int replica = 0; replica < replicas; ++replica)
        expected_[static_cast<std::size_t>(i)] += (replica + i) % period_;
  }

  void fill(int replica, std::span<T> values) const {
    in_blocks(values, [&](std::size_t begin, std::span<float> block) {
      for (std::size_t i = 0; i < block.size(); ++i)
        block[i] = static_cast<float>(index(begin + i + static_cast<std::size_t>(replica)));
      store(block, values.subspan(begin, block.size()));
    });
  }

  /// How many of `values` are not the sum over all replicas.
  std::int64_t count_errors(std::span<const T> values) const {
    std::int64_t errors = 0;
    in_blocks(values, [&](std::size_t begin, std::span<float> block) {
      load(values.subspan(begin, block.size()), block);
      for (std::size_t i = 0; i < block.size(); ++i) errors += is_right(block[i], index(begin + i)) ? 0 : 1;
    });
    return errors;
  }

 private:
  static constexpr std::size_t kBlock = 4096;
  // What a type counts to without a gap; float32 is what the values pass through here.
  static constexpr double kExact =
      static_cast<double>(std::int64_t{1} << std::min(ElementType<T>::kPrecision, ElementType<float>::kPrecision));

  static int period_for(int replicas) {
    constexpr int kShortest = 3;
    constexpr int kLongest = 251;
    const int fits = static_cast<int>(std::min<double>(kLongest, kExact / replicas + 1));
    return std::max(kShortest, fits - (fits + 1) % 2);  // odd, so that slices do not begin alike
  }

  std::size_t index(std::size_t i) const { return i % static_cast<std::size_t>(period_); }

  bool is_right(float value, std::size_t index) const {
    const double expected = expected_[index];
    const double tolerance = expected > kExact ? expected * replicas_ / kExact : 0;
    return std::abs(static_cast<double>(value) - expected) <= tolerance;  // false for NaN
  }

  template <typename Values, typename Body>
  static void in_blocks(Values values, const Body& body) {
    std::array<float, kBlock> block{};
    for (std::size_t begin = 0; begin < values.size(); begin += kBlock)
      body(begin, std::span(block).first(std::min(kBlock, values.size() - begin)));
  }

  static void store(std::span<const float> from, std::span<T> to) {
    if constexpr (std::is_arithmetic_v<T>)
      std::ranges::transform(from, to.begin(), [](float value) { return static_cast<T>(value); });
    else
      narrow(from, to);
  }

  static void load(std::span<const T> from, std::span<float> to) {
    if constexpr (std::is_arithmetic_v<T>)
      std::ranges::transform(from, to.begin(), [](T value) { return static_cast<float>(value); });
    else
      widen(from, to);
  }

  int period_;
  std::vector<double> expected_;
  int replicas_;
};

}  // namespace lockstep::apps
