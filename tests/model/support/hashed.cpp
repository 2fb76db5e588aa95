#include "tests/model/support/hashed.h"

#include <cmath>

namespace lockstep::inline v0::model {

double hashed(std::uint32_t index, std::uint32_t seed) {
  std::uint32_t x = index * 0x9E3779B1U + seed;
  x = (x ^ (x >> 16U)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13U)) * 0xC2B2AE35U;
  x ^= x >> 16U;
  return x / 2147483648.0 - 1;
}

std::vector<std::int32_t> hashed_below(std::int32_t limit, std::size_t count, std::uint32_t seed) {
  std::vector<std::int32_t> numbers(count);
  for (std::uint32_t i = 0; i < count; ++i)
    numbers[i] = static_cast<std::int32_t>((hashed(i, seed) + 1) / 2 * limit);
  return numbers;
}

void fill_hashed(const ParameterInfo& entry, std::uint32_t seed, std::span<float> values) {
  double shift = 0;
  double scale = 0.25;
  if (entry.name.ends_with("/gamma") || entry.name.ends_with("/moving_variance")) shift = 1;
  if (entry.name.ends_with("/kernel"))
    scale = std::sqrt(6.0 / static_cast<double>(element_count(entry.shape) / entry.shape[0]));
  for (std::uint32_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(shift + scale * hashed(i, seed));
}

}  // namespace lockstep::inline v0::model
