// Helpful refusals of a name: what is known, and what was probably meant.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// "a, b, c"
std::string list_names(std::span<const std::string_view> names);

/// `got "reluu" (did you mean relu?)`; without the question where no known name is near.
std::string got_name(std::string_view name, std::span<const std::string_view> known);

// Byte strings, such as paths, in JSON, which holds UTF-8 only.

/// `bytes` as valid UTF-8 from which decode_bytes() restores them. UTF-8 stays as it is; anything else becomes
/// "percent-encoded:" and the bytes, of which those outside printable ASCII, and '%', are written as %XX.
std::string encode_bytes(std::string_view bytes);
/// The reverse of encode_bytes().
std::string decode_bytes(std::string_view text);

/// A copy of `value` with every string value, at any depth, encoded. Keys stay as they are.
nlohmann::json encode_strings(const nlohmann::json& value);
/// The reverse of encode_strings().
nlohmann::json decode_strings(const nlohmann::json& value);

}  // namespace lockstep
