// Byte-level byte pair encoding (Radford et al., "Language models are unsupervised multitask
// learners", 2019).
#pragma once

#include <array>
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

/// A vocabulary of byte strings, and the pairs of tokens that are merged, by priority.
class BytePairs final : public Tokenizer {
 public:
  struct Definition {
    std::vector<std::string> tokens;  ///< by number, as bytes; empty: the number is unused
    std::array<std::int32_t, 256> byte_tokens = {};  ///< the token of each byte
    /// The two tokens and the merged one.
    std::vector<std::array<std::int32_t, 3>> merges;
    TextPreparation preparation;
    bool ignores_merges = false;  ///< a word of the vocabulary is its token, without merges
    std::optional<std::int32_t> end = {};
  };
  explicit BytePairs(Definition definition);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocabulary_size() const override { return std::ssize(definition_.tokens); }
  std::string name() const override { return "byte-level BPE"; }
  std::optional<std::int32_t> end_token() const override { return definition_.end; }

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t token;
  };
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;

  Definition definition_;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the pair of tokens
  /// By text, views of definition_.tokens; empty unless merges are ignored.
  std::unordered_map<std::string_view, std::int32_t> words_;
};

}  // namespace lockstep::inline v0::data
