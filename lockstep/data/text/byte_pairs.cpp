#include "lockstep/data/text/byte_pairs.h"

#include <functional>
#include <memory>
#include <queue>
#include <tuple>
#include <utility>

#include "lockstep/data/text/unicode.h"

namespace lockstep::inline v0::data {
namespace {

enum class Symbol { letter, number, space, other };

Symbol kind_of(char32_t code) {
  return is_space(code)    ? Symbol::space
         : is_letter(code) ? Symbol::letter
         : is_number(code) ? Symbol::number
                           : Symbol::other;
}

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(left) << 32) | static_cast<std::uint32_t>(right);
}

}  // namespace

std::size_t end_of_word(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (rest.starts_with(ending)) return at + ending.size();
  std::size_t end = at + (text[at] == ' ' && at + 1 < text.size() ? 1 : 0);
  Symbol kind = kind_of(next_code_point(text, end));
  if (kind == Symbol::space) end = at;
  std::size_t last = end;  // where the last symbol of the word begins
  bool is_ended = false;
  while (end < text.size() && !is_ended) {
    std::size_t next = end;
    is_ended = kind_of(next_code_point(text, next)) != kind;
    if (!is_ended) last = std::exchange(end, next);
  }
  // The last of several spaces before a word belongs to the word.
  return kind == Symbol::space && is_ended && last > at ? last : end;
}

BytePairs::BytePairs(Definition definition) : definition_(std::move(definition)) {
  std::int32_t rank = 0;
  for (const auto& [left, right, token] : definition_.merges)
    merges_.try_emplace(key_of(left, right), Merge{rank++, token});
  definition_.merges = {};
}

const BytePairs::Merge* BytePairs::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

/// Merges the first pair of the lowest rank until no pair remains. A queue keeps the cost of a word
/// of n bytes at n log n.
void BytePairs::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  struct Part {
    std::int32_t token;  // -1: merged into the one before
    std::size_t before;
    std::size_t next;
  };
  std::vector<Part> parts(word.size());
  using Candidate = std::tuple<std::int32_t, std::size_t, std::int32_t, std::int32_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t left) {
    if (parts[left].next >= parts.size()) return;
    const std::int32_t right = parts[parts[left].next].token;
    if (const Merge* merge = merge_of(parts[left].token, right))
      queue.emplace(merge->rank, left, parts[left].token, right);
  };
  for (std::size_t i = 0; i < word.size(); ++i)
    parts[i] = {definition_.byte_tokens[static_cast<unsigned char>(word[i])], i - 1, i + 1};
  for (std::size_t i = 0; i < word.size(); ++i) offer(i);
  while (!queue.empty()) {
    const auto [rank, left, first, second] = queue.top();
    queue.pop();
    const std::size_t right = parts[left].next;
    if (parts[left].token != first || right >= parts.size() || parts[right].token != second)
      continue;  // one part was merged since
    parts[left].token = merge_of(first, second)->token;
    parts[left].next = parts[right].next;
    parts[right].token = -1;
    if (parts[left].next < parts.size()) parts[parts[left].next].before = left;
    offer(left);
    if (left > 0) offer(parts[left].before);
  }
  for (std::size_t i = 0; i < parts.size(); i = parts[i].next) tokens.push_back(parts[i].token);
}

std::vector<std::int32_t> BytePairs::encode(std::string_view text) const {
  check_utf8(text);
  std::vector<std::int32_t> tokens;
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known;  // in `tokens`
  const auto add_word = [&](std::string_view word) {
    const auto [found, is_new] = known.try_emplace(word, tokens.size(), 0);
    auto& [first, count] = found->second;
    if (is_new) {
      encode_word(word, tokens);
      count = tokens.size() - first;
      return;
    }
    for (std::size_t i = first; i < first + count; ++i) tokens.push_back(tokens[i]);
  };
  std::vector<std::unique_ptr<std::string>> prefixed;  // owns keys of `known`
  definition_.added.split(
      text, [&](std::int32_t token) { tokens.push_back(token); },
      [&](std::string_view piece) {
        if (definition_.has_prefix_space && !piece.starts_with(' ')) {
          prefixed.push_back(std::make_unique<std::string>(1, ' '));
          prefixed.back()->append(piece);
          piece = *prefixed.back();
        }
        for (std::size_t at = 0; at < piece.size();) {
          const std::size_t end = end_of_word(piece, at);
          add_word(piece.substr(at, end - at));
          at = end;
        }
      });
  return tokens;
}

std::string BytePairs::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    text += definition_.tokens[static_cast<std::size_t>(token)];
  }
  return text;
}

}  // namespace lockstep::inline v0::data
