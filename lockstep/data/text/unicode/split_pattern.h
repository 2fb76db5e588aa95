// The regular expressions by which tokenizers split text.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/text/unicode/unicode_tables.h"

namespace lockstep::inline v0::data {

/// A set of code points: general categories, white space, and ranges.
class CodeSet {
 public:
  std::uint32_t categories = 0;   ///< bits as of categories_of()
  bool has_space = false;         ///< White_Space
  std::vector<CodeRange> ranges;  ///< in any order
  bool is_negated = false;        ///< all other code points instead

  /// Prepares contains() after the set has changed.
  void finish();
  bool contains(char32_t code) const { return code < 128 ? ascii_[code] : computed(code); }
  /// Which ASCII characters it has.
  const std::bitset<128>& ascii() const { return ascii_; }

 private:
  bool computed(char32_t code) const;
  std::bitset<128> ascii_;
};

/// A regular expression of the kind that byte-level tokenizers have: alternatives of runs of code
/// points, such as " ?\p{L}+|\s+(?!\S)|\s+". It matches as Oniguruma does, which the tokenizers
/// library uses: the first alternative that matches counts, and runs are as long as possible.
///
/// An alternative has classes ([…], \p{…}, \s, \S, \d), literal characters and groups of
/// literals ((?i:'s|'t), (?:a|b)?), each but the last two with ?, *, +, {n} or {n,m}, also
/// possessive, and (?!\S). Other syntax is rejected.
class SplitPattern {
 public:
  /// Throws std::invalid_argument, with a reason, for syntax that is not supported.
  explicit SplitPattern(std::string_view regex);
  /// A pattern that matches this text only.
  static SplitPattern literal(std::string_view text);

  /// Calls part(text, is_match) for the matches and for what is between them, in order; none is
  /// empty. Throws Error (data) if a text of this length takes too many steps.
  void for_each(std::string_view text,
                const std::function<void(std::string_view, bool)>& part) const;

 private:
  friend class SplitPatternParser;
  /// One part of an alternative.
  struct Part {
    enum class Kind { run, group, not_before_text };
    Kind kind = Kind::run;
    CodeSet set = {};       ///< what a run has
    std::size_t least = 1;  ///< repetitions of the run, or group (0 or 1)
    std::size_t most = 1;   ///< repetitions of the run
    bool is_possessive = false;
    std::vector<std::vector<CodeSet>> choices = {};  ///< alternatives in a group
  };
  using Parts = std::span<const Part>;
  /// An alternative.
  struct Alternative {
    std::vector<Part> parts = {};
    std::bitset<128> first = {};  ///< the ASCII characters with which a match may begin
  };
  class Matcher;

  SplitPattern() = default;
  void add(std::vector<Part> parts);

  std::vector<Alternative> alternatives_;
  std::bitset<128> first_;  // those of all alternatives
};

}  // namespace lockstep::inline v0::data
