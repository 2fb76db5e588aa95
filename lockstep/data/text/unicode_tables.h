// Properties of Unicode code points, as tables in ascending order (scripts/unicode-tables).
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::inline v0::data {

/// Consecutive code points.
struct CodeRange {
  std::uint32_t first;  ///< the first code point
  std::uint32_t last;   ///< the last one
};
/// Every `step`-th code point of the range has its lower case at `distance`.
struct LowerRun {
  std::uint32_t first;    ///< the first code point
  std::uint32_t last;     ///< the last one
  std::uint32_t step;     ///< 1, or 2 where upper and lower case alternate
  std::int32_t distance;  ///< from a code point to its lower case
};
/// A letter with marks, and the letter without them.
struct PlainLetter {
  std::uint32_t letter;  ///< as one code point
  std::uint32_t plain;   ///< without its marks
};

std::span<const CodeRange> letter_ranges();       ///< categories L*
std::span<const CodeRange> number_ranges();       ///< N*
std::span<const CodeRange> punctuation_ranges();  ///< P*
std::span<const CodeRange> mark_ranges();         ///< Mn of Unicode 8
std::span<const CodeRange> control_ranges();      ///< Cc, Cf and Co
std::span<const LowerRun> lower_runs();           ///< from U+0080
/// Without Hangul, which is computed, ideographs for compatibility, and letters that decompose into
/// several.
std::span<const PlainLetter> plain_letters();

}  // namespace lockstep::inline v0::data
