#include "lockstep/data/text/target_text.h"

#include <cstddef>

namespace lockstep::data {

TargetTokens TargetTokens::of(const Tokenizer& tokenizer) {
  const std::int64_t own = tokenizer.vocabulary_size();
  if (const auto end = tokenizer.end_token())
    return {.begin = tokenizer.begin_token().value_or(*end), .end = *end, .vocabulary_size = own};
  const auto next = static_cast<std::int32_t>(own);
  return {.begin = next, .end = next + 1, .vocabulary_size = own + 2};
}

TargetText encode_target(const Tokenizer& tokenizer, std::string_view text, std::int64_t length) {
  const TargetTokens around = TargetTokens::of(tokenizer);
  const auto positions = static_cast<std::size_t>(length);
  TargetText target;
  target.targets = tokenizer.encode(text);
  target.targets.push_back(around.end);
  target.tokens = {around.begin};
  target.tokens.insert(target.tokens.end(), target.targets.begin(), target.targets.end() - 1);
  target.tokens.resize(positions, 0);
  target.targets.resize(positions, -1);
  return target;
}

}  // namespace lockstep::data
