// The text of tokens that arrive one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::apps {

/// Decodes tokens as they are generated. All text is UTF-8: a character of several tokens, such as
/// bytes, appears with the last one, and bytes that are no UTF-8 become U+FFFD. Tokens after the
/// vocabulary of the tokenizer, such as that before a target (data::TargetVocabulary), have no
/// text.
class GeneratedText {
 public:
  /// `last`: the token before the first one; nullopt: the text begins with it.
  GeneratedText(std::shared_ptr<const data::Tokenizer> tokenizer, std::optional<std::int32_t> last)
      : tokenizer_(std::move(tokenizer)) {
    if (last) last_ = {*last};
  }

  /// The text that the next token completes.
  std::string add(std::int32_t token);
  /// What is left at the end: a character that remained incomplete becomes U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  // The last token that has a text of its own, and those after it. The text of a token may depend
  // on the ones before: a space of SentencePiece has none at the beginning.
  std::vector<std::int32_t> last_;
  std::string incomplete_;  // the beginning of a character
};

/// Moves the characters at the beginning of `bytes` to the result, each byte that is no UTF-8 as
/// U+FFFD. What remains is the beginning of a character.
std::string take_characters(std::string& bytes);

}  // namespace lockstep::apps
