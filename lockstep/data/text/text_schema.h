// What a checkpoint stores of the text of a training, so that other texts are read in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::data {

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
  std::vector<std::string> label_words = {};  ///< TextOptions::label_words
  std::string image = {};   ///< of captions: the name of the column of the images; else empty
  std::string source = {};  ///< of pairs of texts: the name of the first ones' column; else empty
  std::string target = {};  ///< the name of the column of what is generated from these
  std::int64_t target_length = 0;  ///< tokens per target; 0: there are none
  /// The bytes of the file, with the hash; null if they are not at hand. A checkpoint stores them
  /// beside its JSON. Not compared.
  std::shared_ptr<const std::string> content = {};

  static constexpr std::int64_t kMaxLength = 1 << 20;  ///< the most tokens of a sample

  /// That of a tokenizer. A path is made absolute, and its file is read for the hash. Throws Error
  /// (data) if that fails.
  static TextSchema of(const std::string& tokenizer, std::string vocabulary = {});
  /// Throws Error (checkpoint) for anything that to_json() does not write. `where` is for the
  /// message.
  static TextSchema from_checkpoint(const nlohmann::json& json, const std::string& where);
  nlohmann::json to_json() const;  ///< what from_checkpoint() reads

  /// The tokenizer of `content`, else of the file at the path. Throws Error (data) if that cannot
  /// be read, is no tokenizer, or has changed.
  std::shared_ptr<const Tokenizer> open() const;
  /// Sets `content` if `bytes`, which may be null, have the hash.
  void adopt(std::shared_ptr<const std::string> bytes);
  /// `content`, else the bytes of the file at the path; null if they do not have the hash, and
  /// without a file.
  std::shared_ptr<const std::string> find_content() const;
  /// "DIR/tokenizer.json is missing" or "... has changed" if open() works only because of
  /// `content`; else empty.
  std::string why_content() const;
  /// Whether the same number is the same token in both.
  bool agrees_with(const TextSchema& other) const { return hash == other.hash; }
  /// "chars", or the name of the file.
  std::string name() const;
  /// Whether all fields that are stored are equal.
  bool operator==(const TextSchema& other) const;
};

}  // namespace lockstep::data
