// Splits a text into the words whose pieces are tokens.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/text/unicode/split_pattern.h"

namespace lockstep::inline v0::data {

/// Steps that each split the pieces of the one before, as the pre-tokenizers of the tokenizers
/// library.
class WordSplitter {
 public:
  /// What becomes of the matches of a pattern.
  enum class Behavior {
    removed,               ///< they are left out
    isolated,              ///< each is a piece
    merged_with_previous,  ///< each is the end of the piece before it
    merged_with_next,      ///< each is the begin of the piece after it
    contiguous,            ///< consecutive ones are one piece
  };
  /// A step.
  struct Step {
    /// What it looks for; without one it splits nothing.
    std::optional<SplitPattern> pattern = {};
    Behavior behavior = Behavior::isolated;  ///< what becomes of the matches
    bool is_inverted = false;                ///< looks for what the pattern does not match
    bool has_prefix_space = false;           ///< first adds a space before a piece without one
  };

  WordSplitter() = default;
  /// `steps`, of which the first is applied first.
  explicit WordSplitter(std::vector<Step> steps) : steps_(std::move(steps)) {}
  /// The splitter of BERT: white space separates words, and each punctuation mark is one.
  static WordSplitter bert();
  /// Adds the steps of `other` after those of this.
  void append(const WordSplitter& other);

  /// Calls word(piece) for each piece of `text`, UTF-8, in order. A piece that begins with an added
  /// space is valid only during the call.
  void split(std::string_view text, const std::function<void(std::string_view)>& word) const {
    split_from(0, text, word);
  }

 private:
  void split_from(std::size_t step, std::string_view text,
                  const std::function<void(std::string_view)>& word) const;

  std::vector<Step> steps_;
};

/// Letters, numbers or other symbols, each with a space before them; a contraction such as 'll; or
/// spaces: the pattern of GPT-2.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Punctuation marks, and the other ASCII symbols, between the brackets of a class.
inline constexpr std::string_view kPunctuation = R"(\p{P}!-/:-@\[-`{-~)";

}  // namespace lockstep::inline v0::data
