// Error texts for unknown names, with suggestions; counts with nouns; numbers in texts; and byte
// strings in JSON.
#pragma once

#include <charconv>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace lockstep::inline v0 {

/// "a, b, c"; with `last` " or " "a, b or c".
std::string list_names(std::span<const std::string_view> names, std::string_view last = ", ");

/// `got "reluu" (did you mean relu?)`; without the suggestion if no known name is similar. Ignores
/// case. A name that begins with `name` is similar if few others do, and so is one that other
/// programs call `name` (names_here()).
std::string got_name(std::string_view name, std::span<const std::string_view> known);

/// "1 step", "2 steps". For nouns whose plural ends in -s.
std::string counted(std::int64_t count, std::string_view noun);

/// Parses a number, independently of the locale; nullopt unless it is the whole of `text`.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Byte strings, such as paths, in JSON, which can represent UTF-8 only.

/// Encodes `bytes` as valid UTF-8; decode_bytes() restores them. UTF-8 is unchanged. Anything else
/// becomes "percent-encoded:" followed by the bytes, with '%' and bytes outside printable ASCII
/// written as %XX.
std::string encode_bytes(std::string_view bytes);
/// The reverse of encode_bytes().
std::string decode_bytes(std::string_view text);

/// A copy of `value` with every string value, at any depth, encoded. Keys are unchanged.
nlohmann::json encode_strings(const nlohmann::json& value);
/// The reverse of encode_strings().
nlohmann::json decode_strings(const nlohmann::json& value);

}  // namespace lockstep::inline v0
