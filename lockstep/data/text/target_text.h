// Texts that a network generates, as what it reads and what it predicts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::data {

/// The tokens around a text that is generated. They are those of the tokenizer; one that has only
/// an end token begins with it, too. Of a tokenizer without either (chars, bytes), with V tokens,
/// they are V and V + 1.
struct TargetTokens {
  std::int32_t begin = 0;            ///< what the network reads first
  std::int32_t end = 0;              ///< what it predicts last
  std::int64_t vocabulary_size = 0;  ///< of the tokenizer, with both

  /// Those of a tokenizer.
  static TargetTokens of(const Tokenizer& tokenizer);
};

/// A text for a network that predicts each of its tokens from those before.
struct TargetText {
  std::vector<std::int32_t> tokens;   ///< [length]: begin, the text, and then 0
  std::vector<std::int32_t> targets;  ///< [length]: the text, end, and then -1
};

/// `text` in `length` positions. A longer text loses its last tokens, and then the end. Throws the
/// errors of Tokenizer::encode().
TargetText encode_target(const Tokenizer& tokenizer, std::string_view text, std::int64_t length);

}  // namespace lockstep::data
