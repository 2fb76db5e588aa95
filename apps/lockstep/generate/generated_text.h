// Incremental decoding of generated tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::apps {

/// Decodes tokens one by one. The result is valid UTF-8: a character that consists of several
/// tokens (such as bytes) is returned with the last of them, and invalid bytes become U+FFFD.
/// Tokens beyond the vocabulary of the tokenizer, such as the begin token of targets
/// (data::TargetVocabulary), have no text.
class GeneratedText {
 public:
  /// `last`: the token before the first one; nullopt if the first token begins the text.
  GeneratedText(std::shared_ptr<const data::Tokenizer> tokenizer, std::optional<std::int32_t> last)
      : tokenizer_(std::move(tokenizer)) {
    if (last) last_ = {*last};
  }

  /// The text that the next token completes.
  std::string add(std::int32_t token);
  /// The remaining text: an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  // The last token with a text, and the tokens after it. The text of a token may depend on its
  // predecessors: SentencePiece drops a space at the beginning.
  std::vector<std::int32_t> last_;
  std::string incomplete_;  // the beginning of a character
};

/// Removes the complete characters from the beginning of `bytes` and returns them, with each
/// invalid byte as U+FFFD. The rest is the beginning of a character.
std::string extract_characters(std::string& bytes);

}  // namespace lockstep::inline v0::apps
