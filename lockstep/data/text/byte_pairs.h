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
    AddedTokens added;
    bool has_prefix_space = false;  ///< adds a space to texts that do not begin with one
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
};

/// The end of the word that begins at `at`: letters, digits or other symbols, each with a space
/// before them; a contraction such as 'll; or spaces. The pattern of GPT-2:
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t end_of_word(std::string_view text, std::size_t at);

}  // namespace lockstep::inline v0::data
