#include "lockstep/data/text/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/data/text/unicode_tables.h"

namespace lockstep::inline v0::data {
namespace {

constexpr char32_t kHighest = 0x10FFFF;

[[noreturn]] void fail_utf8(std::string_view text, std::size_t at) {
  throw Error(ErrorCategory::data, "text", "expected text in UTF-8",
              fmt::format("got the byte 0x{:02x} at offset {}",
                          static_cast<unsigned>(static_cast<unsigned char>(text[at])), at));
}

/// The code point at byte `at`, which is advanced past it; nullopt for bytes that are not UTF-8.
std::optional<char32_t> code_point(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  const std::size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || more > text.size() - at) return std::nullopt;
  char32_t code = lead & (0x3FU >> more);
  for (std::size_t i = 0; i < more; ++i, ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte & 0xC0) != 0x80) return std::nullopt;
    code = (code << 6) | (byte & 0x3FU);
  }
  constexpr std::array<char32_t, 4> kLeast = {0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[more] || code > kHighest || is_surrogate) return std::nullopt;
  return code;
}

bool is_in(std::span<const CodeRange> ranges, char32_t code) {
  const auto found = std::ranges::lower_bound(ranges, code, {}, &CodeRange::last);
  return found != ranges.end() && found->first <= code;
}

bool is_ascii_letter(char32_t code) { return (code | 0x20) >= 'a' && (code | 0x20) <= 'z'; }

}  // namespace

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::size_t first = at;
  const auto code = code_point(text, at);
  if (!code) fail_utf8(text, first);
  return *code;
}

std::size_t utf8_size(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  for (std::size_t at = 0; at < text.size();) {
    for (std::uint64_t eight = 0; at + sizeof(eight) <= text.size(); at += sizeof(eight)) {
      std::memcpy(&eight, &text[at], sizeof(eight));
      if ((eight & kHighBits) != 0) break;  // otherwise eight ASCII characters
    }
    const std::size_t first = at;
    if (at < text.size() && !code_point(text, at)) return first;
  }
  return text.size();
}

void check_utf8(std::string_view text) {
  if (const std::size_t size = utf8_size(text); size < text.size()) fail_utf8(text, size);
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.substr(text.starts_with(kMark) ? kMark.size() : 0);
}

void append_utf8(char32_t code, std::string& text) {
  const auto tail = [&](unsigned shift) {
    text += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_letter(char32_t code) {
  return code < 0x80 ? is_ascii_letter(code) : is_in(letter_ranges(), code);
}

bool is_number(char32_t code) {
  return code < 0x80 ? code >= '0' && code <= '9' : is_in(number_ranges(), code);
}

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_mark(char32_t code) { return code >= 0x80 && is_in(mark_ranges(), code); }
bool is_control(char32_t code) { return is_in(control_ranges(), code); }

bool is_punctuation(char32_t code) {
  if (code < 0x80) return code > ' ' && code < 0x7F && !is_ascii_letter(code) && !is_number(code);
  return is_in(punctuation_ranges(), code);
}

bool is_ideograph(char32_t code) {
  constexpr CodeRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                       {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return code >= 0x3400 && is_in(kIdeographs, code);
}

char32_t lower_case(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code | 0x20 : code;
  const auto runs = lower_runs();
  const auto run = std::ranges::lower_bound(runs, code, {}, &LowerRun::last);
  if (run == runs.end() || code < run->first || (code - run->first) % run->step != 0) return code;
  return static_cast<char32_t>(static_cast<std::int32_t>(code) + run->distance);
}

void append_without_marks(char32_t code, std::u32string& text) {
  constexpr char32_t kSyllables = 0xAC00;  // first of the 19 x 21 x 28 Hangul syllables
  if (code >= kSyllables && code < kSyllables + 19 * 21 * 28) {
    const char32_t index = code - kSyllables;
    text += 0x1100 + index / (21 * 28);
    text += 0x1161 + index / 28 % 21;
    if (index % 28 > 0) text += 0x11A7 + index % 28;
    return;
  }
  if (is_mark(code)) return;
  const auto letters = plain_letters();
  const auto found = code < 0x80
                         ? letters.end()
                         : std::ranges::lower_bound(letters, code, {}, &PlainLetter::letter);
  text += found != letters.end() && found->letter == code ? char32_t{found->plain} : code;
}

}  // namespace lockstep::inline v0::data
