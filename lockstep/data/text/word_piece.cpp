#include "lockstep/data/text/word_piece.h"

#include <utility>

#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {

WordPiece::WordPiece(Definition definition) : definition_(std::move(definition)) {
  for (std::size_t i = 0; i < definition_.tokens.size(); ++i)
    if (!definition_.tokens[i].empty())
      numbers_.try_emplace(definition_.tokens[i], static_cast<std::int32_t>(i));
}

void WordPiece::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  const std::size_t before = tokens.size();
  std::vector<std::size_t> ends;  // end of each code point in `word`
  for (std::size_t at = 0; at < word.size();) {
    next_code_point(word, at);
    ends.push_back(at);
  }
  if (ends.size() > definition_.longest_word) return tokens.push_back(definition_.unknown);
  std::string candidate;
  for (std::size_t first = 0; first < ends.size();) {
    const std::size_t begin = first == 0 ? 0 : ends[first - 1];
    std::size_t last = ends.size();
    auto found = numbers_.end();
    for (; last > first && found == numbers_.end(); --last) {
      candidate = first == 0 ? "" : definition_.continuation;
      candidate.append(word.substr(begin, ends[last - 1] - begin));
      found = numbers_.find(candidate);
    }
    if (found == numbers_.end()) {
      tokens.resize(before);
      tokens.push_back(definition_.unknown);
      return;
    }
    tokens.push_back(found->second);
    first = last + 1;  // the loop advanced once more
  }
}

std::vector<std::int32_t> WordPiece::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  definition_.preparation.split(
      text, [&](std::int32_t token) { tokens.push_back(token); },
      [&](std::string_view word) { encode_word(word, tokens); });
  return tokens;
}

std::string WordPiece::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    std::string_view piece = definition_.tokens[static_cast<std::size_t>(token)];
    if (piece.starts_with(definition_.continuation))
      piece.remove_prefix(definition_.continuation.size());
    else if (!text.empty())
      text += ' ';
    text += piece;
  }
  return text;
}

}  // namespace lockstep::inline v0::data
