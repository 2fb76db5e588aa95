#include "lockstep/data/text/target_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

std::vector<std::int32_t> encode_nonempty(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  if (tokens.empty())
    throw Error(ErrorCategory::data, "text", "expected a text of at least one token",
                text.empty() ? "the text is empty" : "there is none");
  return tokens;
}

TextTokens whole_text(const Tokenizer& tokenizer, std::vector<std::int32_t> tokens,
                      std::size_t length) {
  const auto begin = tokenizer.begin_token();
  if (begin && length < 3)
    throw Error(ErrorCategory::input, "text",
                "expected a length of at least 3, with the tokens before and after each text",
                fmt::format("got {}", length));
  const std::size_t capacity = length - (begin ? 2 : 0);
  TextTokens text{.tokens = std::move(tokens)};
  text.is_cut = text.tokens.size() > capacity;
  if (text.is_cut) text.tokens.resize(capacity);
  if (begin) {
    text.tokens.insert(text.tokens.begin(), *begin);
    text.tokens.push_back(tokenizer.end_token().value());
  }
  return text;
}

TargetVocabulary TargetVocabulary::for_tokenizer(const Tokenizer& tokenizer) {
  TargetVocabulary vocabulary{.size = tokenizer.vocabulary_size()};
  const auto added = [&] { return static_cast<std::int32_t>(vocabulary.size++); };
  const auto end = tokenizer.end_token();
  auto begin = tokenizer.begin_token();
  if (!begin) begin = end;
  vocabulary.begin = begin ? *begin : added();
  vocabulary.end = end ? *end : added();
  return vocabulary;
}

TextTokens target_tokens(const Tokenizer& tokenizer, std::string_view text, std::size_t length) {
  TextTokens target{.tokens = encode_nonempty(tokenizer, text)};
  target.is_cut = target.tokens.size() >= length;
  if (target.is_cut) target.tokens.resize(length);
  return target;
}

void write_target(std::span<const std::int32_t> text, const TargetVocabulary& vocabulary,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  LOCKSTEP_CHECK(!tokens.empty() && tokens.size() == targets.size() &&
                 text.size() <= tokens.size());
  std::ranges::fill(tokens, 0);
  std::ranges::fill(targets, -1);
  tokens.front() = vocabulary.begin;
  std::ranges::copy(text.first(std::min(text.size(), tokens.size() - 1)), tokens.begin() + 1);
  std::ranges::copy(text, targets.begin());
  if (text.size() < targets.size()) targets[text.size()] = vocabulary.end;
}

}  // namespace lockstep::inline v0::data
