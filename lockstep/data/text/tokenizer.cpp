#include "lockstep/data/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {

void check_token(std::int32_t token, std::int64_t vocabulary_size) {
  if (token < 0 || token >= vocabulary_size)
    throw Error(ErrorCategory::input, "tokens",
                fmt::format("expected tokens from 0 to {}", vocabulary_size - 1),
                fmt::format("got {}", token));
}

CharsTokenizer::CharsTokenizer(std::string_view vocabulary) {
  for (std::size_t at = 0; at < vocabulary.size();) {
    const char32_t code = next_code_point(vocabulary, at);
    if (!codes_.empty() && code <= codes_.back())
      throw Error(ErrorCategory::data, "vocabulary", "expected characters in ascending order",
                  fmt::format("got U+{:04X} after U+{:04X}", static_cast<std::uint32_t>(code),
                              static_cast<std::uint32_t>(codes_.back())));
    codes_.push_back(code);
  }
  if (codes_.empty())
    throw Error(ErrorCategory::data, "vocabulary", "expected at least one character",
                "there is none");
  numbers_.assign(std::size_t{codes_.back()} + 1, -1);
  for (std::size_t i = 0; i < codes_.size(); ++i)
    numbers_[codes_[i]] = static_cast<std::int32_t>(i);
}

void CharacterSet::add(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t code = next_code_point(text, at);
    if (code >= has_.size()) has_.resize(code + 1);
    has_[code] = true;
  }
}

std::string CharacterSet::vocabulary() const {
  std::string vocabulary;
  for (std::size_t code = 0; code < has_.size(); ++code)
    if (has_[code]) append_utf8(static_cast<char32_t>(code), vocabulary);
  return vocabulary;
}

std::vector<std::int32_t> CharsTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at;
    const char32_t code = next_code_point(text, at);
    const std::int32_t number = code < numbers_.size() ? numbers_[code] : -1;
    if (number < 0)
      throw Error(
          ErrorCategory::data, "text",
          "expected characters of the training text (tokenizer=bytes reads any text)",
          fmt::format("got U+{:04X} at offset {}", static_cast<std::uint32_t>(code), first));
    tokens.push_back(number);
  }
  return tokens;
}

std::string CharsTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    append_utf8(codes_[static_cast<std::size_t>(token)], text);
  }
  return text;
}

std::vector<std::int32_t> BytesTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens(text.size());
  std::ranges::transform(text, tokens.begin(),
                         [](char c) { return static_cast<unsigned char>(c); });
  return tokens;
}

std::string BytesTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    text += static_cast<char>(token);
  }
  return text;
}

namespace {

/// The end of the white space that begins at byte `at`.
std::size_t end_of_space(std::string_view text, std::size_t at) {
  for (std::size_t next = at; next < text.size(); at = next)
    if (!is_space(next_code_point(text, next))) break;
  return at;
}

/// Where the white space before byte `end` begins, at least `first`.
std::size_t end_without_space(std::string_view text, std::size_t first, std::size_t end) {
  for (std::size_t at = end; at > first;) {
    do --at;
    while (at > first && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    std::size_t next = at;
    if (!is_space(next_code_point(text, next))) break;
    end = at;
  }
  return end;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, [](const Token& token) {
    return std::pair(std::string_view(token.text), token.number);
  });
  const auto is_same = [](const Token& a, const Token& b) { return a.text == b.text; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), is_same), tokens_.end());
  for (const Token& token : tokens_) ++first_[static_cast<unsigned char>(token.text.front()) + 1U];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

void AddedTokens::split(std::string_view text, const std::function<void(std::int32_t)>& token,
                        const std::function<void(std::string_view)>& piece) const {
  std::size_t first = 0;  // begin of the piece
  const auto end_piece = [&](std::size_t end) {
    if (end > first) piece(text.substr(first, end - first));
  };
  for (std::size_t at = 0; at < text.size();) {
    const Token* found = nullptr;  // the longest match
    for_each_prefix(text.substr(at), [&](const Token& prefix) { found = &prefix; });
    if (found == nullptr) {
      ++at;
      continue;
    }
    end_piece(found->strips_left ? end_without_space(text, first, at) : at);
    token(found->number);
    at += found->text.size();
    if (found->strips_right) at = end_of_space(text, at);
    first = at;
  }
  end_piece(text.size());
}

}  // namespace lockstep::inline v0::data
