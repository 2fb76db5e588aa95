#include "lockstep/data/text/sentence_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <queue>
#include <stdexcept>
#include <tuple>

#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

/// The bytes of the first character, or all if there are fewer.
std::size_t character_length(std::string_view text) {
  constexpr std::array<std::uint8_t, 16> kLengths = {1, 1, 1, 1, 1, 1, 1, 1,
                                                     1, 1, 1, 1, 2, 2, 3, 4};
  return std::min<std::size_t>(kLengths[static_cast<unsigned char>(text.front()) >> 4],
                               text.size());
}

}  // namespace

CharacterMap::CharacterMap(std::string_view bytes) {
  constexpr std::size_t kMaxText = 1024;  // bytes of a replacement
  if (bytes.empty()) return;
  std::uint32_t size = 0;  // bytes of the trie; all numbers are little-endian
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (size == 0 || size % sizeof(std::uint32_t) != 0 || size >= bytes.size() - sizeof size)
    throw std::invalid_argument("its \"precompiled_charsmap\" is damaged");
  units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof size, size);
  texts_ = bytes.substr(sizeof size + size);
  if (texts_.back() != '\0') texts_ += '\0';
  for (std::size_t at = 0; at < texts_.size();) {
    const std::size_t end = texts_.find('\0', at);
    if (end - at > kMaxText)
      throw std::invalid_argument(
          fmt::format("its \"precompiled_charsmap\" has a text of {} bytes", end - at));
    at = end + 1;
  }
}

std::pair<std::size_t, std::string_view> CharacterMap::find(std::string_view text) const {
  constexpr std::size_t kMaxRule = 256;  // bytes
  constexpr std::uint32_t kOffsetIsLong = 1U << 9;
  constexpr std::uint32_t kHasLeaf = 1U << 8;
  constexpr std::uint32_t kIsValue = 1U << 31;
  const auto offset_of = [](std::uint32_t unit) {
    return (unit >> 10) << ((unit & kOffsetIsLong) != 0 ? 8 : 0);
  };
  std::pair<std::size_t, std::string_view> longest = {0, {}};
  if (units_.empty()) return longest;
  std::uint32_t at = offset_of(units_[0]);
  for (std::size_t i = 0; i < std::min(text.size(), kMaxRule); ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size() || (units_[at] & (kIsValue | 0xFF)) != byte) break;
    const std::uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if ((unit & kHasLeaf) == 0) continue;
    if (at >= units_.size()) break;
    const std::size_t value = units_[at] & ~kIsValue;
    if (value >= texts_.size()) break;
    longest = {i + 1, texts_.c_str() + value};
  }
  return longest;
}

SentencePiece::SentencePiece(Definition definition) : definition_(std::move(definition)) {
  std::vector<AddedTokens::Token> findable;
  std::vector<AddedTokens::Token> user;
  float lowest = std::numeric_limits<float>::max();
  highest_score_ = std::numeric_limits<float>::min();  // as in the library
  splits_words_ = !definition_.space_is_suffix;
  for (std::size_t i = 0; i < definition_.pieces.size(); ++i) {
    const Piece& piece = definition_.pieces[i];
    const auto number = static_cast<std::int32_t>(i);
    if (piece.kind == Kind::normal) {
      lowest = std::min(lowest, piece.score);
      highest_score_ = std::max(highest_score_, piece.score);
    }
    if (piece.kind == Kind::user) user.push_back({piece.text, number});
    if (piece.kind != Kind::normal && piece.kind != Kind::user) continue;
    findable.push_back({piece.text, number});
    numbers_.try_emplace(piece.text, number);
    if (piece.text.find(kSpace, 1) != std::string::npos) splits_words_ = false;
  }
  constexpr float kUnknownPenalty = 10;
  unknown_score_ = lowest - kUnknownPenalty;
  findable_ = AddedTokens(std::move(findable));
  user_ = AddedTokens(std::move(user));
}

std::string SentencePiece::name() const {
  return definition_.method == Method::unigram ? "SentencePiece unigram" : "SentencePiece BPE";
}

std::size_t SentencePiece::user_length(std::string_view text) const {
  std::size_t length = 0;
  user_.for_each_prefix(text, [&](const AddedTokens::Token& token) { length = token.text.size(); });
  return length;
}

std::string SentencePiece::normalized(std::string_view text) const {
  const std::string_view space = definition_.escapes_spaces ? kSpace : " ";
  const bool removes = definition_.removes_spaces;
  // The length in bytes of the beginning of the text, and its replacement.
  const auto next = [&](std::string_view rest) -> std::pair<std::size_t, std::string_view> {
    if (const std::size_t length = user_length(rest)) return {length, rest.substr(0, length)};
    if (const auto rule = definition_.map.find(rest); rule.first > 0) return rule;
    const std::size_t length = character_length(rest);
    return {length, rest.substr(0, length)};
  };
  while (removes && !text.empty()) {
    const auto [length, replaced] = next(text);
    if (replaced != " ") break;
    text.remove_prefix(length);
  }
  std::string result;
  if (text.empty()) return result;
  result.reserve(text.size() + text.size() / 2);
  if (definition_.has_added_space && !definition_.space_is_suffix) result += space;
  bool follows_space = removes;
  while (!text.empty()) {
    auto [length, replaced] = next(text);
    text.remove_prefix(length);
    while (follows_space && replaced.starts_with(' ')) replaced.remove_prefix(1);
    for (const char c : replaced) {
      if (c == ' ')
        result += space;
      else
        result += c;
    }
    if (!replaced.empty()) follows_space = removes && replaced.ends_with(' ');
  }
  while (removes && result.ends_with(space)) result.erase(result.size() - space.size());
  if (definition_.has_added_space && definition_.space_is_suffix) result += space;
  return result;
}

/// Finds the best path to each byte (Viterbi). Sums are rounded to floats before they are compared,
/// as in the library since 0.2.2: this decides between nearly equal paths.
SentencePiece::Parts SentencePiece::encode_unigram(std::string_view text, float& sum) const {
  struct Path {
    float score = 0;
    std::int32_t token = -1;  // the last one; -1: no path yet
    std::size_t begin = 0;    // begin of that token
  };
  std::vector<Path> paths(text.size() + 1);
  paths.front().score = sum;
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t token, float score) {
    Path& path = paths[end];
    if (path.token >= 0 && !(score > path.score)) return;
    path = {score, token, begin};
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string_view rest = text.substr(begin);
    const std::size_t character = character_length(rest);
    const float before = paths[begin].score;
    bool has_character = false;
    findable_.for_each_prefix(rest, [&](const AddedTokens::Token& found) {
      const std::size_t length = found.text.size();
      const Piece& piece = definition_.pieces[static_cast<std::size_t>(found.number)];
      const double score = piece.kind == Kind::user
                               ? static_cast<float>(length) * highest_score_ - 0.1
                               : static_cast<double>(piece.score);
      offer(begin, begin + length, found.number,
            static_cast<float>(score + static_cast<double>(before)));
      has_character = has_character || length == character;
    });
    if (!has_character)
      offer(begin, begin + character, definition_.unknown, unknown_score_ + before);
    begin += character;
  }
  sum = paths.back().score;
  Parts parts;
  for (std::size_t end = text.size(); end > 0; end = paths[end].begin)
    parts.emplace_back(text.substr(paths[end].begin, end - paths[end].begin), paths[end].token);
  std::ranges::reverse(parts);
  return parts;
}

SentencePiece::Parts SentencePiece::encode_byte_pairs(std::string_view text) const {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  struct Symbol {
    std::string_view text;  // empty: merged into the one before
    std::size_t before;
    std::size_t next;
    bool is_fixed;  // a user piece
  };
  std::vector<Symbol> symbols;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const std::size_t user = user_length(rest);
    const std::size_t length = user > 0 ? user : character_length(rest);
    const std::size_t i = symbols.size();
    at += length;
    symbols.push_back({rest.substr(0, length), i == 0 ? kNone : i - 1,
                       at == text.size() ? kNone : i + 1, user > 0});
  }
  struct Candidate {
    float score;
    std::size_t left;
    std::size_t right;
    std::size_t bytes;  // total size
    bool operator<(const Candidate& other) const {
      return std::tie(score, other.left) < std::tie(other.score, left);
    }
  };
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::size_t left, std::size_t right) {
    if (left == kNone || right == kNone || symbols[left].is_fixed || symbols[right].is_fixed)
      return;
    const std::size_t bytes = symbols[left].text.size() + symbols[right].text.size();
    const auto found = numbers_.find({symbols[left].text.data(), bytes});
    if (found == numbers_.end()) return;
    queue.push(
        {definition_.pieces[static_cast<std::size_t>(found->second)].score, left, right, bytes});
  };
  for (std::size_t i = 1; i < symbols.size(); ++i) offer(i - 1, i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != best.bytes)
      continue;  // one part was merged since
    left.text = {left.text.data(), best.bytes};
    left.next = right.next;
    if (right.next != kNone) symbols[right.next].before = best.left;
    right.text = {};
    offer(left.before, best.left);
    offer(best.left, left.next);
  }
  Parts parts;
  for (std::size_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].next) {
    const auto found = numbers_.find(symbols[i].text);
    parts.emplace_back(symbols[i].text,
                       found == numbers_.end() ? definition_.unknown : found->second);
  }
  return parts;
}

void SentencePiece::append(std::string_view text, std::int32_t token,
                           std::vector<std::int32_t>& tokens) const {
  if (token != definition_.unknown) return tokens.push_back(token);
  if (definition_.byte_tokens) {
    for (const char byte : text)
      tokens.push_back((*definition_.byte_tokens)[static_cast<unsigned char>(byte)]);
  } else if (tokens.empty() || tokens.back() != token) {
    tokens.push_back(token);
  }
}

std::vector<std::int32_t> SentencePiece::encode(std::string_view text) const {
  check_utf8(text);
  const std::string all = normalized(text);
  std::vector<std::int32_t> tokens;
  std::unordered_map<std::string_view, Parts> known;
  float sum = 0;
  const auto append_parts = [&](const Parts& parts) {
    for (const auto& [part, token] : parts) append(part, token, tokens);
  };
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end =
        splits_words_ ? std::min(all.find(kSpace, at + 1), all.size()) : all.size();
    const std::string_view word = std::string_view(all).substr(at, end - at);
    at = end;
    if (definition_.method == Method::unigram) {
      append_parts(encode_unigram(word, sum));
      continue;
    }
    const auto [found, is_new] = known.try_emplace(word);
    if (is_new) found->second = encode_byte_pairs(word);
    append_parts(found->second);
  }
  return tokens;
}

std::string SentencePiece::decode(std::span<const std::int32_t> tokens) const {
  const bool drops_first = definition_.has_added_space || definition_.removes_spaces;
  std::string text;
  bool is_begin = drops_first;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    const Piece& piece = definition_.pieces[static_cast<std::size_t>(token)];
    if (piece.kind == Kind::control) continue;
    if (piece.kind == Kind::unknown) {
      text += definition_.unknown_text;
    } else if (piece.kind == Kind::byte) {
      const auto& bytes = *definition_.byte_tokens;
      text += static_cast<char>(std::ranges::find(bytes, token) - bytes.begin());
    } else {
      std::string_view rest = piece.text;
      if (is_begin && rest.starts_with(kSpace)) {
        rest.remove_prefix(kSpace.size());
        is_begin = definition_.removes_spaces;  // until there is text
      }
      while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(kSpace), rest.size());
        text += rest.substr(0, end);
        if (end < rest.size()) text += ' ';
        rest.remove_prefix(std::min(end + kSpace.size(), rest.size()));
      }
    }
    if (!text.empty()) is_begin = false;
  }
  return text;
}

}  // namespace lockstep::inline v0::data
