// Single texts as rows of tokens: inputs that a network reads as a whole, and targets, which it
// generates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::data {

/// The tokens of a text.
struct TextTokens {
  std::vector<std::int32_t> tokens;  ///< at most one per position
  bool is_cut = false;               ///< the text has more
};

/// Tokenizer::encode() that also throws Error (data) for a text without tokens.
std::vector<std::int32_t> encode_nonempty(const Tokenizer& tokenizer, std::string_view text);

/// Fits `tokens` of an input text into `length` positions, between the tokenizer's begin and end
/// tokens if it has a begin token. The last ones that do not fit are dropped. Throws Error (input)
/// for a length below 3 with these tokens.
TextTokens whole_text(const Tokenizer& tokenizer, std::vector<std::int32_t> tokens,
                      std::size_t length);

/// The tokens of targets: those of a tokenizer of V tokens, with its begin token before and its end
/// token after each text. Without a begin token, the end token also precedes each text; tokens that
/// it lacks otherwise are added after the vocabulary: V before a text, V + 1 after it.
struct TargetVocabulary {
  std::int32_t begin = 0;  ///< before the first token
  std::int32_t end = 0;    ///< after the last one
  std::int64_t size = 0;   ///< number of tokens, these included

  static TargetVocabulary for_tokenizer(const Tokenizer& tokenizer);  ///< for a tokenizer
};

/// The tokens of a target without begin and end, in `length` positions, at least one. It is cut if
/// its end does not fit. Throws the errors of encode_nonempty().
TextTokens target_tokens(const Tokenizer& tokenizer, std::string_view text, std::size_t length);

/// Writes a text w1, w2, … to both arrays, which have the same size: `tokens` are begin, w1, …, and
/// then 0; `targets` are w1, …, end, and then -1, which losses ignore. A text that is cut fills all
/// positions, without the end.
void write_target(std::span<const std::int32_t> text, const TargetVocabulary& vocabulary,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

}  // namespace lockstep::inline v0::data
