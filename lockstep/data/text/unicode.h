// UTF-8 and the properties of code points that tokenizers need.
#pragma once

#include <cstddef>
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

bool is_letter(char32_t code);  ///< \p{L}
bool is_number(char32_t code);  ///< \p{N}
bool is_space(char32_t code);   ///< White_Space
/// \p{Mn} of Unicode 8, such as a combining accent: marks as in the tokenizers library.
bool is_mark(char32_t code);
bool is_control(char32_t code);      ///< \p{Cc}, \p{Cf} and \p{Co}
bool is_punctuation(char32_t code);  ///< \p{P}, and the other printable ASCII symbols
bool is_ideograph(char32_t code);    ///< CJK, as in BERT's BasicTokenizer

char32_t lower_case(char32_t code);  ///< `code` if it has none
/// Appends the canonical decomposition of `code` without marks; see plain_letters() for exceptions.
void append_without_marks(char32_t code, std::u32string& text);

}  // namespace lockstep::inline v0::data
