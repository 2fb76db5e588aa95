// Text as numbers: characters, bytes, or the pieces of a vocabulary from a file.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::inline v0::data {

/// Converts text to tokens, numbers from 0 to vocabulary_size()-1, and back. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Throws Error (data) with the offset for bytes that are not UTF-8 (except BytesTokenizer), and
  /// for characters without a token.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The text of tokens; WordPiece does not restore what its normalization removed. Throws Error
  /// (input) for a number that is not a token.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  virtual std::int64_t vocabulary_size() const = 0;  ///< number of tokens
  /// "chars", "bytes", "byte-level BPE", "WordPiece", or "SentencePiece unigram" or "... BPE".
  virtual std::string name() const = 0;
  /// The token before a text that is classified as a whole, such as [CLS]; nullopt if there is
  /// none. The end token then follows the text.
  virtual std::optional<std::int32_t> begin_token() const { return std::nullopt; }
  /// The token that ends a document; nullopt if there is none.
  virtual std::optional<std::int32_t> end_token() const { return std::nullopt; }
};

/// The characters of texts.
class CharacterSet {
 public:
  void add(std::string_view text);  ///< throws Error (data) for bytes that are not UTF-8
  std::string vocabulary() const;   ///< in ascending order, as UTF-8

 private:
  std::vector<bool> has_;  // by code point, up to the highest one
};

/// Unicode code points.
class CharsTokenizer final : public Tokenizer {
 public:
  /// `vocabulary` has all code points in ascending order, as UTF-8. Throws Error (data) if not.
  explicit CharsTokenizer(std::string_view vocabulary);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocabulary_size() const override { return std::ssize(codes_); }
  std::string name() const override { return "chars"; }

 private:
  std::vector<char32_t> codes_;        // by token
  std::vector<std::int32_t> numbers_;  // by code point; -1: none
};

/// The 256 values of a byte, for any file.
class BytesTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocabulary_size() const override { return 256; }
  std::string name() const override { return "bytes"; }
};

/// Tokens that match wherever they occur in a text, such as "<|endoftext|>".
class AddedTokens {
 public:
  /// A token.
  struct Token {
    std::string text;           ///< not empty
    std::int32_t number = 0;    ///< the token
    bool strips_left = false;   ///< white space before it belongs to it
    bool strips_right = false;  ///< white space after it belongs to it
  };

  AddedTokens() = default;
  /// If several tokens have the same text, the lowest number counts.
  explicit AddedTokens(std::vector<Token> tokens);

  /// Calls token(number) and text(piece) for the parts of a text, UTF-8, in order; the longest of
  /// several tokens at the same position counts.
  void split(std::string_view text, const std::function<void(std::int32_t)>& token,
             const std::function<void(std::string_view)>& piece) const;

  /// Calls use(token) for all tokens that are prefixes of a nonempty text, the shortest first.
  template <typename Use>
  void for_each_prefix(std::string_view text, Use use) const;

 private:
  static unsigned byte_at(std::string_view text, std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  }

  std::vector<Token> tokens_;  // in the order of their bytes
  /// Index of the first token of each first byte, and the end.
  std::array<std::size_t, 257> first_ = {};
};

// The tokens that match the bytes so far are a range that shrinks with each byte: the number of
// steps is at most the length of the longest token.
template <typename Use>
void AddedTokens::for_each_prefix(std::string_view text, Use use) const {
  const std::size_t lead = byte_at(text, 0);
  std::span range(tokens_.data() + first_[lead], first_[lead + 1] - first_[lead]);
  for (std::size_t length = 1; !range.empty(); ++length) {
    if (range.front().text.size() == length) {
      use(range.front());
      range = range.subspan(1);
    }
    if (length == text.size()) break;
    const auto byte = [&](const Token& token) { return byte_at(token.text, length); };
    range = {std::ranges::lower_bound(range, byte_at(text, length), {}, byte),
             std::ranges::upper_bound(range, byte_at(text, length), {}, byte)};
  }
}

/// Throws Error (input) for a number outside a vocabulary of this size.
void check_token(std::int32_t token, std::int64_t vocabulary_size);

}  // namespace lockstep::inline v0::data
