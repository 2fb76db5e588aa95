// Ranges of Unicode code points, and those that utf8proc does not know (scripts/unicode-tables).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace lockstep::inline v0::data {

/// Consecutive code points.
struct CodeRange {
  std::uint32_t first;  ///< the first code point
  std::uint32_t last;   ///< the last one
};

/// Whether ranges in ascending order have `code`.
inline bool is_in(std::span<const CodeRange> ranges, char32_t code) {
  const auto found = std::ranges::lower_bound(ranges, code, {}, &CodeRange::last);
  return found != ranges.end() && found->first <= code;
}

std::span<const CodeRange> mark_ranges();    ///< Mn of Unicode 8
std::span<const CodeRange> accent_ranges();  ///< M of Unicode 9

}  // namespace lockstep::inline v0::data
