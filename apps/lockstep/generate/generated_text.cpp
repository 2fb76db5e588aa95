#include "apps/lockstep/generate/generated_text.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep::inline v0::apps {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Sequence {
  std::size_t length = 0;    ///< bytes of the character or of its beginning; 0: not UTF-8
  bool is_complete = false;  ///< false: more bytes must follow
};

/// The character at the beginning of `bytes` (Unicode standard, table 3-7).
Sequence first_character(std::string_view bytes) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, false};
    // Excludes overlong forms, surrogates, and numbers above U+10FFFF.
    const unsigned lowest = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned highest = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < lowest || byte(i) > highest) return {};
  }
  return {length, true};
}

}  // namespace

std::string extract_characters(std::string& bytes) {
  std::string text;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Sequence next = first_character(std::string_view(bytes).substr(at));
    if (next.length > 0 && !next.is_complete) break;
    if (next.length == 0)
      text += kReplacement;
    else
      text.append(bytes, at, next.length);
    at += next.length == 0 ? 1 : next.length;
  }
  bytes.erase(0, at);
  return text;
}

std::string GeneratedText::add(std::int32_t token) {
  if (token >= tokenizer_->vocabulary_size()) return "";
  const std::string before = tokenizer_->decode(last_);
  last_.push_back(token);
  const std::string text = tokenizer_->decode(last_);
  const std::string alone = tokenizer_->decode(std::span(last_).last(1));
  incomplete_ += text.starts_with(before) ? text.substr(before.size()) : alone;
  if (!alone.empty()) last_ = {token};
  return extract_characters(incomplete_);
}

std::string GeneratedText::finish() {
  std::string text = extract_characters(incomplete_);
  if (!incomplete_.empty()) text += kReplacement;
  incomplete_.clear();
  return text;
}

}  // namespace lockstep::inline v0::apps
