#include "lockstep/data/text/unicode/text_normalizer.h"

#include <cstddef>

#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

using TextStep = TextNormalizer::Step;

void append_lower_case(char32_t code, std::string& text) {
  append_utf8(lower_case(code), text);
  // The only letter whose lower case has two code points: i with a dot above.
  constexpr char32_t kCapitalWithDot = 0x130;
  constexpr char32_t kDotAbove = 0x307;
  if (code == kCapitalWithDot) append_utf8(kDotAbove, text);
}

void append_cleaned(char32_t code, std::string& text) {
  constexpr char32_t kReplacement = 0xFFFD;
  if (code == kReplacement || is_control(code)) return;
  append_utf8(is_space(code) ? U' ' : code, text);
}

void append_apart(char32_t code, std::string& text) {
  const bool is_apart = is_ideograph(code);
  if (is_apart) text += ' ';
  append_utf8(code, text);
  if (is_apart) text += ' ';
}

/// Appends what a step, which looks at single code points, makes of `code`, which is not ASCII.
void append_changed(TextStep step, char32_t code, std::string& text) {
  if (step == TextStep::lower_case) return append_lower_case(code, text);
  if (step == TextStep::clean) return append_cleaned(code, text);
  if (step == TextStep::separate_ideographs) return append_apart(code, text);
  const bool is_removed = step == TextStep::strip_accents ? is_accent(code) : is_mark(code);
  if (!is_removed) append_utf8(code, text);
}

/// Appends what such a step makes of an ASCII character.
void append_ascii(TextStep step, char c, std::string& text) {
  if (step == TextStep::lower_case)
    text += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  else if (step != TextStep::clean || (c >= ' ' && c < 0x7F))
    text += c;
  else if (c == '\t' || c == '\n' || c == '\r')
    text += ' ';
}

std::string changed(TextStep step, std::string_view text) {
  switch (step) {
    case TextStep::nfc:
      return normal_form(text, NormalForm::nfc);
    case TextStep::nfd:
      return normal_form(text, NormalForm::nfd);
    case TextStep::nfkc:
      return normal_form(text, NormalForm::nfkc);
    case TextStep::nfkd:
      return normal_form(text, NormalForm::nfkd);
    default:
      break;
  }
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();)
    if (static_cast<unsigned char>(text[at]) < 0x80)
      append_ascii(step, text[at++], result);
    else
      append_changed(step, next_code_point(text, at), result);
  return result;
}

}  // namespace

TextNormalizer TextNormalizer::bert(bool cleans, bool separates_ideographs, bool strips_accents,
                                    bool lowers_case) {
  std::vector<Step> steps;
  if (cleans) steps.push_back(Step::clean);
  if (separates_ideographs) steps.push_back(Step::separate_ideographs);
  if (strips_accents) steps.insert(steps.end(), {Step::nfd, Step::strip_nonspacing});
  if (lowers_case) steps.push_back(Step::lower_case);
  return TextNormalizer(std::move(steps));
}

void TextNormalizer::append(const TextNormalizer& other) {
  steps_.insert(steps_.end(), other.steps_.begin(), other.steps_.end());
}

std::string TextNormalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const Step step : steps_) result = changed(step, result);
  return result;
}

}  // namespace lockstep::inline v0::data
