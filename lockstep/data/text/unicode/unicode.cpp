#include "lockstep/data/text/unicode/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/data/text/unicode/unicode_tables.h"

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

/// Names of the general categories in the order of their numbers in utf8proc.
constexpr std::array<std::string_view, 30> kCategories = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
static_assert(kCategories[UTF8PROC_CATEGORY_LO] == "Lo" &&
              kCategories[UTF8PROC_CATEGORY_PO] == "Po" &&
              kCategories[UTF8PROC_CATEGORY_CO] == "Co");

/// Appends the normal form of a text.
void append_normal(std::string_view text, utf8proc_option_t form, std::string& result) {
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &bytes, form);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, std::free);
  if (size < 0)
    throw Error(ErrorCategory::data, "text", "expected text that has a normal form",
                fmt::format("got {}", utf8proc_errmsg(size)));
  result.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

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

std::uint32_t categories_of(std::string_view name) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < kCategories.size(); ++i)
    if (!name.empty() && (kCategories[i] == name || kCategories[i].substr(0, 1) == name))
      bits |= std::uint32_t{1} << i;
  return bits;
}

std::uint32_t category_bit(char32_t code) {
  return std::uint32_t{1} << utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_mark(char32_t code) { return code >= 0x80 && is_in(mark_ranges(), code); }
bool is_accent(char32_t code) { return code >= 0x80 && is_in(accent_ranges(), code); }

bool is_control(char32_t code) {
  static const std::uint32_t controls =
      categories_of("Cc") | categories_of("Cf") | categories_of("Co");
  return (category_bit(code) & controls) != 0;
}

bool is_ideograph(char32_t code) {
  constexpr CodeRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                       {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return code >= 0x3400 && is_in(kIdeographs, code);
}

char32_t lower_case(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code | 0x20 : code;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

std::string normal_form(std::string_view text, NormalForm form) {
  unsigned options = UTF8PROC_STABLE;
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  std::string result;
  result.reserve(text.size());
  // Characters that are not ASCII change together, with the one before them.
  while (!text.empty()) {
    const auto* const other = std::ranges::find_if_not(text, is_ascii);
    if (other == text.end()) return result.append(text);
    const auto* const first = other == text.begin() ? other : other - 1;
    const auto* const last = std::find_if(other, text.end(), is_ascii);
    result.append(text.begin(), first);
    append_normal(std::string_view(first, last), static_cast<utf8proc_option_t>(options), result);
    text.remove_prefix(static_cast<std::size_t>(last - text.begin()));
  }
  return result;
}

}  // namespace lockstep::inline v0::data
