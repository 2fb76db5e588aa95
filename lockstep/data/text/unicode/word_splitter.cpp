#include "lockstep/data/text/unicode/word_splitter.h"

#include <fmt/format.h>

#include <string>

namespace lockstep::inline v0::data {
namespace {

using Behavior = WordSplitter::Behavior;

/// Whether a part of a text continues the part before it.
bool continues(Behavior behavior, bool was_match, bool is_match) {
  switch (behavior) {
    case Behavior::merged_with_previous:
      return is_match && !was_match;
    case Behavior::merged_with_next:
      return !is_match && was_match;
    case Behavior::contiguous:
      return is_match == was_match;
    case Behavior::removed:
    case Behavior::isolated:
      break;
  }
  return false;
}

/// Calls piece(text) for what a step without a prefix makes of `text`.
void split_once(const WordSplitter::Step& step, std::string_view text,
                const std::function<void(std::string_view)>& piece) {
  std::string_view last;  // the piece that the next part may continue
  bool was_match = false;
  step.pattern->for_each(text, [&](std::string_view part, bool matches) {
    const bool is_match = matches != step.is_inverted;
    if (!last.empty() && continues(step.behavior, was_match, is_match)) {
      last = {last.data(), last.size() + part.size()};
    } else {
      if (!last.empty()) piece(last);
      last = step.behavior == Behavior::removed && is_match ? std::string_view() : part;
    }
    was_match = is_match;
  });
  if (!last.empty()) piece(last);
}

}  // namespace

WordSplitter WordSplitter::bert() {
  return WordSplitter({{.pattern = SplitPattern(fmt::format("[^\\s{0}]+|[{0}]", kPunctuation)),
                        .behavior = Behavior::removed,
                        .is_inverted = true}});
}

void WordSplitter::append(const WordSplitter& other) {
  steps_.insert(steps_.end(), other.steps_.begin(), other.steps_.end());
}

void WordSplitter::split_from(std::size_t step, std::string_view text,
                              const std::function<void(std::string_view)>& word) const {
  if (step == steps_.size()) return word(text);
  std::string prefixed;
  if (steps_[step].has_prefix_space && !text.starts_with(' ')) {
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  if (!steps_[step].pattern) return split_from(step + 1, text, word);
  split_once(steps_[step], text,
             [&](std::string_view piece) { split_from(step + 1, piece, word); });
}

}  // namespace lockstep::inline v0::data
