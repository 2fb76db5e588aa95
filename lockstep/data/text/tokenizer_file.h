// Files of tokenizers: tokenizer.json of Hugging Face, and vocab.txt of BERT.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::data {

/// The content of the file; at most 64 MiB. Throws Error (data).
std::string read_tokenizer_file(const std::filesystem::path& file);

/// The tokenizer that a file describes: tokenizer.json with a byte-level BPE, as GPT-2's, or with
/// WordPiece, as BERT's; otherwise a vocabulary of WordPiece, one token a line. `where` is its
/// name. Special tokens in the text are one token each; none is added, whatever the file's
/// post-processor. Throws Error (data) for damage and for what it does not cover.
std::shared_ptr<const Tokenizer> parse_tokenizer_file(std::string_view bytes,
                                                      const std::string& where);

/// Tokens that stand for themselves wherever they occur in a text, such as "<|endoftext|>".
class AddedTokens {
 public:
  void add(std::string text, std::int32_t number);  ///< not empty
  /// Calls token(number) and text(piece) for the parts of a text in order; of tokens at the same
  /// place the longest counts.
  void split(std::string_view text, const std::function<void(std::int32_t)>& token,
             const std::function<void(std::string_view)>& piece) const;

 private:
  std::array<std::vector<std::pair<std::string, std::int32_t>>, 256> by_first_;  // longest first
};

}  // namespace lockstep::data
