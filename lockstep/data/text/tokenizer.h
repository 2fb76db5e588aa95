// Text as numbers: characters, bytes, or the pieces of a vocabulary that comes in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// Converts text to tokens, numbers from 0 to vocabulary_size()-1, and back. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Throws Error (data) with the offset for bytes that are not UTF-8 (except BytesTokenizer), and
  /// for characters that no token has.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The text of tokens; of WordPiece without what its normalization removed. Throws Error (input)
  /// for a number that is no token.
  virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
  virtual std::int64_t vocabulary_size() const = 0;  ///< number of tokens
  /// "chars", "bytes", "byte-level BPE" or "WordPiece".
  virtual std::string name() const = 0;
  /// The token before a text that is classified as a whole, [CLS]; nullopt if there is none. The
  /// end token then follows the text.
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

/// The 256 values of a byte: of any file.
class BytesTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> tokens) const override;
  std::int64_t vocabulary_size() const override { return 256; }
  std::string name() const override { return "bytes"; }
};

/// How the texts of a training become samples: what a checkpoint stores of it, so that other texts
/// are read in the same way.
struct TextSchema {
  std::string tokenizer = {};   ///< "chars", "bytes", or the absolute path of a file
  std::string vocabulary = {};  ///< of chars
  std::string hash = {};        ///< of the vocabulary, or of the bytes of the file: 16 digits
  std::int64_t length = 0;      ///< tokens per sample
  bool has_segments = false;    ///< the documents are lines, or fields of a column
  std::string column = {};      ///< of a table of texts: the name of their column; else empty
  std::string label = {};       ///< the name of the column of their classes; empty: they have none

  /// That of a tokenizer. A path is made absolute, and its file is read for the hash. Throws Error
  /// (data) if that fails.
  static TextSchema of(const std::string& tokenizer, std::string vocabulary = {});
  /// Throws Error (checkpoint) for anything that to_json() does not write. `where` is for the
  /// message.
  static TextSchema from_checkpoint(const nlohmann::json& json, const std::string& where);
  nlohmann::json to_json() const;  ///< what from_checkpoint() reads

  /// Throws Error (data) if the file cannot be read, is no tokenizer, or has changed.
  std::shared_ptr<const Tokenizer> open() const;
  /// Whether the same number is the same token in both.
  bool agrees_with(const TextSchema& other) const { return hash == other.hash; }
  /// "chars", or the name of the file.
  std::string name() const;
  bool operator==(const TextSchema&) const = default;
};

/// Throws Error (input) for a number that is no token of a vocabulary of this size.
void check_token(std::int32_t token, std::int64_t vocabulary_size);

}  // namespace lockstep::data
