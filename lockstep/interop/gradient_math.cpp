#include "lockstep/interop/gradient_math.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace lockstep::inline v0::interop {

template <typename T>
void HostGradientMath<T>::assign(std::span<T> to, std::span<const T> from, double factor) {
  const auto by = static_cast<T>(factor);
  if (by == 1) {
    std::ranges::copy(from, to.begin());
    return;
  }
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] * by;
}

template <typename T>
void HostGradientMath<T>::add(std::span<T> to, std::span<const T> from, double factor) {
  const auto by = static_cast<T>(factor);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = (to[i] + from[i]) * by;
}

template <typename T>
void HostGradientMath<T>::scale(std::span<T> values, double factor) {
  const auto by = static_cast<T>(factor);
  if (by == 1) return;
  for (T& value : values) value *= by;
}

template <typename T>
void HostGradientMath<T>::clear(std::span<T> values) {
  std::ranges::fill(values, T{0});
}

// Several partial sums, so that the compiler can vectorize. The order of additions depends on the
// size only.
template <typename T>
double HostGradientMath<T>::squared_norm(std::span<const T> values) {
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

template <typename T>
void HostGradientMath<T>::write(std::span<T> to, std::span<const T> from_host) {
  std::ranges::copy(from_host, to.begin());
}

template <typename T>
void HostGradientMath<T>::read(std::span<T> to_host, std::span<const T> from) {
  std::ranges::copy(from, to_host.begin());
}

template class HostGradientMath<float>;
template class HostGradientMath<double>;

}  // namespace lockstep::inline v0::interop
