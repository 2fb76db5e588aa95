// What lies between the lowest and the highest of some values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

namespace lockstep::apps {

/// The lowest and highest of some values.
template <typename T>
struct ValueExtent {
  T lowest = std::numeric_limits<T>::max();
  T highest = std::numeric_limits<T>::lowest();

  void add(T value) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  /// "-2 to 1.5", "7", or "-" where there are none.
  std::string text() const {
    if (lowest > highest) return "-";
    return lowest == highest ? fmt::format("{}", lowest) : fmt::format("{} to {}", lowest, highest);
  }
};

}  // namespace lockstep::apps
