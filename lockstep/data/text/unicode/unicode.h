// UTF-8, and the properties and normal forms of text that tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::inline v0::data {

/// The code point at byte `at`, which is advanced past it. Throws Error (data), with the offset,
/// for bytes that are not UTF-8.
char32_t next_code_point(std::string_view text, std::size_t& at);
/// Number of bytes before the first that are not UTF-8; all of them if there are none.
std::size_t utf8_size(std::string_view text);
/// Throws Error (data), with the offset, for the first bytes that are not UTF-8.
void check_utf8(std::string_view text);
/// `text` without the UTF-8 byte order mark that Windows editors write.
std::string_view without_byte_order_mark(std::string_view text);
/// Appends `code` as UTF-8.
void append_utf8(char32_t code, std::string& text);

/// Sets of general categories, one bit for each: "Lu", "Nd", or all of "L". 0: there is no such
/// name.
std::uint32_t categories_of(std::string_view name);
/// The bit of the general category of `code`.
std::uint32_t category_bit(char32_t code);

bool is_space(char32_t code);  ///< White_Space
/// \p{Mn} of Unicode 8, such as a combining accent: what BERT's normalizer removes in the
/// tokenizers library.
bool is_mark(char32_t code);
bool is_accent(char32_t code);     ///< \p{M} of Unicode 9, as for "StripAccents" of that library
bool is_control(char32_t code);    ///< \p{Cc}, \p{Cf} and \p{Co}
bool is_ideograph(char32_t code);  ///< CJK, as in BERT's BasicTokenizer

/// Lower case, of one code point for each; `code` if it has none.
char32_t lower_case(char32_t code);

/// Normal forms of Unicode: canonical and compatibility (k) decomposition (d) or composition (c).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// `text`, which is UTF-8, in a normal form. Throws Error (data) if there is no memory for it.
std::string normal_form(std::string_view text, NormalForm form);

}  // namespace lockstep::inline v0::data
