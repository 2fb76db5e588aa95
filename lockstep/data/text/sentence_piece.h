// SentencePiece (Kudo and Richardson, "SentencePiece: A simple and language independent subword
// tokenizer and detokenizer for neural text processing", 2018), with the ids of the library of that
// name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::data {

/// The "precompiled_charsmap" of a model: rules that replace characters, such as those of NFKC. A
/// trie as a double array (Darts-clone), whose values are offsets in a list of texts.
class CharacterMap {
 public:
  CharacterMap() = default;  ///< without rules
  /// Throws std::invalid_argument if the bytes are damaged.
  explicit CharacterMap(std::string_view bytes);

  /// The length in bytes of the longest rule that matches the beginning of a text, and the
  /// replacement; 0 if none does.
  std::pair<std::size_t, std::string_view> find(std::string_view text) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

/// Replaces each space by the character U+2581, then splits the text into pieces of a vocabulary:
/// those with the highest sum of scores (unigram), or by repeatedly merging the neighbors that form
/// the piece with the highest score (BPE). Neighbors without a piece are one unknown token, or
/// their bytes if the model has all 256.
class SentencePiece final : public Tokenizer {
 public:
  enum class Method { unigram, byte_pairs };  ///< how pieces are found
  /// Kinds of pieces: `user` ones match wherever they occur, unknown and control ones have no text,
  /// unused ones never match.
  enum class Kind : std::uint8_t { normal, unknown, control, user, unused, byte };
  struct Piece {
    std::string text;
    float score = 0;  ///< finite
    Kind kind = Kind::normal;
  };
  struct Definition {
    Method method = Method::unigram;
    std::vector<Piece> pieces;  ///< by number; the first of equal texts counts
    std::int32_t unknown = 0;
    std::optional<std::int32_t> begin = {};  ///< bos
    std::optional<std::int32_t> end = {};    ///< eos
    /// The piece of each byte, for characters without one.
    std::optional<std::array<std::int32_t, 256>> byte_tokens = {};
    std::string unknown_text = " \xE2\x81\x87 ";  ///< decoded unknown token
    CharacterMap map;
    bool has_added_space = true;   ///< before the text, or after it
    bool removes_spaces = true;    ///< at both ends, and all but one of several
    bool escapes_spaces = true;    ///< as U+2581
    bool space_is_suffix = false;  ///< words end, not begin, with it
  };
  explicit SentencePiece(Definition definition);
  SentencePiece(const SentencePiece&) = delete;  // members are views of its pieces
  SentencePiece& operator=(const SentencePiece&) = delete;

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocabulary_size() const override { return std::ssize(definition_.pieces); }
  std::string name() const override;
  /// Nullopt if there is no end token.
  std::optional<std::int32_t> begin_token() const override {
    return definition_.end ? definition_.begin : std::nullopt;
  }
  std::optional<std::int32_t> end_token() const override { return definition_.end; }

 private:
  using Parts = std::vector<std::pair<std::string_view, std::int32_t>>;  // text, token

  std::string normalized(std::string_view text) const;
  /// The length in bytes of the user piece at the beginning of a text; 0 if there is none.
  std::size_t user_length(std::string_view text) const;
  /// Adds the scores to `sum`, that of all preceding text: it affects float32 rounding, and so the
  /// choice between nearly equal paths.
  Parts encode_unigram(std::string_view text, float& sum) const;
  Parts encode_byte_pairs(std::string_view text) const;
  /// Appends a part; it may become several tokens, or none.
  void append(std::string_view text, std::int32_t token, std::vector<std::int32_t>& tokens) const;

  Definition definition_;
  AddedTokens findable_;                                        // normal and user pieces
  AddedTokens user_;                                            // user pieces
  std::unordered_map<std::string_view, std::int32_t> numbers_;  // by text, of findable_
  float unknown_score_ = 0;
  float highest_score_ = 0;
  bool splits_words_ = false;  // no piece continues after a U+2581 that is not its first character
};

}  // namespace lockstep::inline v0::data
