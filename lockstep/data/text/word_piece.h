// WordPiece, as in BERT (Devlin et al., "BERT: Pre-training of deep bidirectional transformers for
// language understanding", 2019).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/data/text/text_preparation.h"
#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::data {

/// Splits text into words and punctuation, and each word into the longest pieces of a vocabulary.
class WordPiece final : public Tokenizer {
 public:
  struct Definition {
    std::vector<std::string> tokens;  ///< by number; empty: the number is unused
    std::string continuation = "##";  ///< prefix of pieces within a word
    std::int32_t unknown = 0;         ///< token of words without pieces
    std::size_t longest_word = 100;   ///< code points; a longer word is unknown
    TextPreparation preparation;
    std::optional<std::int32_t> begin = {};  ///< [CLS]
    std::optional<std::int32_t> end = {};    ///< [SEP]
  };
  explicit WordPiece(Definition definition);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocabulary_size() const override { return std::ssize(definition_.tokens); }
  std::string name() const override { return "WordPiece"; }
  std::optional<std::int32_t> begin_token() const override { return definition_.begin; }
  std::optional<std::int32_t> end_token() const override { return definition_.end; }

 private:
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;

  Definition definition_;
  std::unordered_map<std::string_view, std::int32_t>
      numbers_;  // by text, views of definition_.tokens
};

}  // namespace lockstep::inline v0::data
