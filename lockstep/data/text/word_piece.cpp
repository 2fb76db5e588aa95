#include "lockstep/data/text/word_piece.h"

#include <utility>

#include "lockstep/data/text/unicode.h"

namespace lockstep::inline v0::data {

WordPiece::WordPiece(Definition definition) : definition_(std::move(definition)) {
  for (std::size_t i = 0; i < definition_.tokens.size(); ++i)
    if (!definition_.tokens[i].empty())
      numbers_.try_emplace(definition_.tokens[i], static_cast<std::int32_t>(i));
}

void WordPiece::normalize(char32_t code, std::u32string& text) const {
  const Normalizer& normalizer = definition_.normalizer;
  constexpr char32_t kReplacement = 0xFFFD;
  if (normalizer.cleans) {
    if (code == '\t' || code == '\n' || code == '\r') code = ' ';
    if (code == 0 || code == kReplacement || is_control(code)) return;
    if (is_space(code)) code = ' ';
  }
  const bool is_apart = normalizer.splits_ideographs && is_ideograph(code);
  if (is_apart) text += U' ';
  const std::size_t first = text.size();
  if (normalizer.strips_accents)
    append_without_marks(code, text);
  else
    text += code;
  if (normalizer.lower_case) {
    for (std::size_t i = first; i < text.size(); ++i) text[i] = lower_case(text[i]);
    // The only letter whose lower case has two code points: i with a dot above.
    constexpr char32_t kCapitalWithDot = 0x130;
    constexpr char32_t kDotAbove = 0x307;
    if (code == kCapitalWithDot && !normalizer.strips_accents) text += kDotAbove;
  }
  if (is_apart) text += U' ';
}

void WordPiece::encode_piece(std::string_view piece, std::vector<std::int32_t>& tokens) const {
  std::u32string text;
  text.reserve(piece.size());
  for (std::size_t at = 0; at < piece.size();) normalize(next_code_point(piece, at), text);
  std::size_t first = 0;  // begin of the word
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool is_end = i == text.size() || is_space(text[i]);
    if (!is_end && !is_punctuation(text[i])) continue;
    if (i > first) encode_word(std::u32string_view(text).substr(first, i - first), tokens);
    if (!is_end) encode_word(std::u32string_view(text).substr(i, 1), tokens);
    first = i + 1;
  }
}

void WordPiece::encode_word(std::u32string_view word, std::vector<std::int32_t>& tokens) const {
  const std::size_t before = tokens.size();
  if (word.size() > definition_.longest_word) return tokens.push_back(definition_.unknown);
  std::string bytes;
  std::vector<std::size_t> ends;  // end of each code point in `bytes`
  for (const char32_t code : word) {
    append_utf8(code, bytes);
    ends.push_back(bytes.size());
  }
  std::string candidate;
  for (std::size_t first = 0; first < ends.size();) {
    const std::size_t begin = first == 0 ? 0 : ends[first - 1];
    std::size_t last = ends.size();
    auto found = numbers_.end();
    for (; last > first && found == numbers_.end(); --last) {
      candidate = first == 0 ? "" : definition_.continuation;
      candidate.append(bytes, begin, ends[last - 1] - begin);
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
  check_utf8(text);
  std::vector<std::int32_t> tokens;
  definition_.added.split(
      text, [&](std::int32_t token) { tokens.push_back(token); },
      [&](std::string_view piece) { encode_piece(piece, tokens); });
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
