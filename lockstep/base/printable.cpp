#include "lockstep/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace lockstep::inline v0 {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};
constexpr std::array<CodeRange, 5> kControls = {{{0x00, 0x1F},
                                                 {0x7F, 0x9F},  // DEL and C1
                                                 {0x200E, 0x200F},
                                                 {0x2028, 0x202E},
                                                 {0x2066, 0x2069}}};

std::size_t length_by_lead(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// The code point of the `length` bytes at the beginning of `text`.
char32_t code_point(std::string_view text, std::size_t length) {
  if (length == 1) return static_cast<unsigned char>(text[0]);
  char32_t code = static_cast<unsigned char>(text[0]) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  return code;
}

void append_escaped(std::string& text, char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::string_view kNamed = "\n\r\t";
  constexpr std::string_view kLetters = "nrt";
  const auto value = static_cast<unsigned char>(byte);
  text += '\\';
  if (const std::size_t at = kNamed.find(byte); at != std::string_view::npos) {
    text += kLetters[at];
  } else {
    text += 'x';
    text += kDigits[value >> 4];
    text += kDigits[value & 0xF];
  }
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const std::size_t length = length_by_lead(static_cast<unsigned char>(text[0]));
  if (length <= 1) return length;
  if (length > text.size()) return 0;
  for (const char byte : text.substr(1, length - 1))
    if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) return 0;
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const char32_t code = code_point(text, length);
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast[length] || code > 0x10FFFF || is_surrogate ? 0 : length;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    const char32_t code = length == 0 ? 0 : code_point(text, length);
    const bool is_control = std::ranges::any_of(
        kControls, [code](CodeRange range) { return code >= range.first && code <= range.last; });
    if (!is_control || kept.find(character) != std::string_view::npos)
      shown += character;
    else
      for (const char byte : character) append_escaped(shown, byte);
    text.remove_prefix(character.size());
  }
  return shown;
}

}  // namespace lockstep::inline v0
