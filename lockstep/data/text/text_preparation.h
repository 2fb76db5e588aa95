// What happens to a text before its words become tokens.
#pragma once

#include <functional>
#include <string_view>

#include "lockstep/data/text/tokenizer.h"
#include "lockstep/data/text/unicode/text_normalizer.h"
#include "lockstep/data/text/unicode/word_splitter.h"

namespace lockstep::inline v0::data {

/// The steps of the tokenizers library: added tokens are found, the text between them is
/// normalized, other added tokens are found there, and the rest is split into words.
struct TextPreparation {
  AddedTokens exact = {};          ///< tokens that are found in the text as it is
  TextNormalizer normalizer = {};  ///< changes the text between them
  AddedTokens normalized = {};     ///< tokens that are found in the normalized text
  WordSplitter splitter = {};      ///< makes words of the rest

  /// Calls token(number) and word(text) for the parts of a text in order. Throws Error (data) with
  /// the offset for bytes that are not UTF-8.
  void split(std::string_view text, const std::function<void(std::int32_t)>& token,
             const std::function<void(std::string_view)>& word) const;
};

}  // namespace lockstep::inline v0::data
