// Single texts as rows of tokens: those that a network reads as a whole, and targets, which it
// generates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::data {

/// The tokens of a text.
struct TextTokens {
  std::vector<std::int32_t> tokens;  ///< at most as many as positions
  bool is_cut = false;               ///< it has more
};

/// Tokenizer::encode() for texts that must not be empty: throws Error (data) for a text without
/// tokens, too.
std::vector<std::int32_t> encode_nonempty(const Tokenizer& tokenizer, std::string_view text);

/// `tokens` of a text that is read as a whole, in `length` positions: between the tokenizer's begin
/// token and its end token, if it has a begin token. The last ones that do not fit are left out.
/// Throws Error (input) for a length below 3 with these tokens.
TextTokens whole_text(const Tokenizer& tokenizer, std::vector<std::int32_t> tokens,
                      std::size_t length);

/// The tokens of targets: those of a tokenizer, and one before and one after each text. They are
/// the tokenizer's begin and end tokens. If it has no begin token, the end token precedes each
/// text, too; what it lacks then is a token after the vocabulary: V before a text, V + 1 after it.
struct TargetVocabulary {
  std::int32_t begin = 0;  ///< before the first token
  std::int32_t end = 0;    ///< after the last one
  std::int64_t size = 0;   ///< number of tokens, these included

  static TargetVocabulary of(const Tokenizer& tokenizer);  ///< that of a tokenizer
};

/// The tokens of a target alone, in `length` positions, at least one. It is cut if its end does not
/// fit. Throws the errors of encode_nonempty().
TextTokens target_tokens(const Tokenizer& tokenizer, std::string_view text, std::size_t length);

/// Writes a text w1, w2, … to both arrays, which have as many positions: `tokens` are begin, w1, …,
/// and then 0; `targets` are w1, …, end, and then -1, which no loss counts. Of a text that is cut,
/// all positions are targets, none of them the end.
void write_target(std::span<const std::int32_t> text, const TargetVocabulary& vocabulary,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

}  // namespace lockstep::data
