// Chi-square statistics of counts.
#pragma once

#include <cmath>
#include <vector>

namespace lockstep::inline v0::data {

/// Chi-square of observed counts against one expected count each.
inline double chi_square(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

/// The number of standard deviations of a chi-square with k degrees of freedom above its mean
/// (Wilson and Hilferty's cube root).
inline double deviations(double chi, double freedom) {
  const double scale = 2.0 / (9.0 * freedom);
  return (std::cbrt(chi / freedom) - (1.0 - scale)) / std::sqrt(scale);
}

}  // namespace lockstep::inline v0::data
