#include "lockstep/interop/gradient_math.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep::interop {

void HostGradientMath::assign(std::span<float> to, std::span<const float> from, float factor) {
  if (factor == 1) {
    std::ranges::copy(from, to.begin());
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] * factor;
}

void HostGradientMath::add(std::span<float> to, std::span<const float> from, float factor) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = (to[i] + from[i]) * factor;
}

void HostGradientMath::scale(std::span<float> values, float factor) {
  if (factor == 1) return;
  for (float& value : values) value *= factor;
}

void HostGradientMath::clear(std::span<float> values) { std::ranges::fill(values, 0.0F); }

// Several partial sums, so that the compiler can vectorize. The order of additions depends on the
// size only.
double HostGradientMath::squared_norm(std::span<const float> values) {
  constexpr std::size_t kSums = 16;
  std::array<double, kSums> sums{};
  const std::size_t whole = values.size() / kSums * kSums;
  for (std::size_t i = 0; i < whole; i += kSums)
    for (std::size_t j = 0; j < kSums; ++j) {
      const double value = values[i + j];
      sums[j] += value * value;
    }
  for (std::size_t i = whole; i < values.size(); ++i)
    sums[i - whole] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

void HostGradientMath::write(std::span<float> to, std::span<const float> from_host) {
  std::ranges::copy(from_host, to.begin());
}

void HostGradientMath::read(std::span<float> to_host, std::span<const float> from) {
  std::ranges::copy(from, to_host.begin());
}

}  // namespace lockstep::interop
