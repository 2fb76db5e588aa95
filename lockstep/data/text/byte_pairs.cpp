#include "lockstep/data/text/byte_pairs.h"

#include <cstddef>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

/// Hashes strings and views of them alike.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(left) << 32) | static_cast<std::uint32_t>(right);
}

}  // namespace

BytePairs::BytePairs(Definition definition) : definition_(std::move(definition)) {
  std::int32_t rank = 0;
  for (const auto& [left, right, token] : definition_.merges)
    merges_.try_emplace(key_of(left, right), Merge{rank++, token});
  definition_.merges = {};
  if (!definition_.ignores_merges) return;
  for (std::size_t i = 0; i < definition_.tokens.size(); ++i)
    words_.try_emplace(definition_.tokens[i], static_cast<std::int32_t>(i));
}

const BytePairs::Merge* BytePairs::merge_of(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

/// Merges the first pair of the lowest rank until no pair remains. A queue keeps the cost of a word
/// of n bytes at n log n.
void BytePairs::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  if (const auto found = words_.find(word); found != words_.end())
    return tokens.push_back(found->second);
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
  std::vector<std::int32_t> tokens;
  // Where the tokens of a word are in `tokens`: the first one, and their number.
  std::unordered_map<std::string, std::pair<std::size_t, std::size_t>, TextHash, std::equal_to<>>
      known;
  const auto add_word = [&](std::string_view word) {
    if (const auto found = known.find(word); found != known.end()) {
      const auto [first, count] = found->second;
      for (std::size_t i = first; i < first + count; ++i) tokens.push_back(tokens[i]);
      return;
    }
    const std::size_t first = tokens.size();
    encode_word(word, tokens);
    known.try_emplace(std::string(word), first, tokens.size() - first);
  };
  definition_.preparation.split(
      text, [&](std::int32_t token) { tokens.push_back(token); }, add_word);
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
