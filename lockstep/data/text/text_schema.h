// The description of training texts that a checkpoint stores.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::data {

/// How training texts become samples, as stored in a checkpoint, so that other texts are read in
/// the same way.
struct TextSchema {
  std::string tokenizer = {};                 ///< "chars", "bytes", or the absolute path of a file
  std::string vocabulary = {};                ///< characters of chars
  std::string hash = {};                      ///< hash of the vocabulary or of the file: 16 digits
  std::int64_t length = 0;                    ///< tokens per sample
  bool has_segments = false;                  ///< the documents are lines, or fields of a column
  std::string column = {};                    ///< column of texts in a table; else empty
  std::string label = {};                     ///< column of classes; empty: none
  std::vector<std::string> label_words = {};  ///< TextOptions::label_words
  std::string image = {};                     ///< column of image files, for captions; else empty
  std::string source = {};                    ///< column of input texts, for pairs; else empty
  std::string target = {};         ///< column of texts to generate, for pairs and captions
  std::int64_t target_length = 0;  ///< tokens per target; 0: no targets
  /// The bytes of the file; null if unavailable. A checkpoint stores them beside its JSON. Not
  /// compared.
  std::shared_ptr<const std::string> content = {};

  static constexpr std::int64_t kMaxLength = 1 << 20;  ///< maximum number of tokens per sample

  /// The schema of a tokenizer. A path is made absolute, and its file is hashed. Throws Error
  /// (data) if it cannot be read.
  static TextSchema for_tokenizer(const std::string& tokenizer, std::string vocabulary = {});
  /// Throws Error (checkpoint) for anything that to_json() does not write. `where` is for the
  /// message.
  static TextSchema from_checkpoint(const nlohmann::json& json, const std::string& where);
  nlohmann::json to_json() const;  ///< what from_checkpoint() reads

  /// The tokenizer in `content`, otherwise in the file at the path. Throws Error (data) if that
  /// cannot be read, is no tokenizer, or has changed.
  std::shared_ptr<const Tokenizer> open() const;
  /// Sets `content` if `bytes`, which may be null, have the hash.
  void adopt(std::shared_ptr<const std::string> bytes);
  /// `content`, otherwise the bytes of the file; null without a file or if they do not have the
  /// hash.
  std::shared_ptr<const std::string> find_content() const;
  /// "DIR/tokenizer.json is missing" or "... has changed" if open() works only because of
  /// `content`; else empty.
  std::string why_content() const;
  /// Whether token numbers have the same meaning.
  bool agrees_with(const TextSchema& other) const { return hash == other.hash; }
  /// "chars", or the name of the file.
  std::string name() const;
  /// Whether all fields that are stored are equal.
  bool operator==(const TextSchema& other) const;
};

}  // namespace lockstep::inline v0::data
