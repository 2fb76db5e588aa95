// Byte strings, such as paths, in JSON, which holds UTF-8 only.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep::strategy {

/// `bytes` as valid UTF-8 from which decode_bytes() restores them. UTF-8 stays as it is; anything else becomes
/// "percent-encoded:" and the bytes, of which those outside printable ASCII, and '%', are written as %XX.
std::string encode_bytes(std::string_view bytes);
/// The reverse of encode_bytes().
std::string decode_bytes(std::string_view text);

/// A copy of `value` with every string value, at any depth, encoded. Keys stay as they are.
nlohmann::json encode_strings(const nlohmann::json& value);
/// The reverse of encode_strings().
nlohmann::json decode_strings(const nlohmann::json& value);

}  // namespace lockstep::strategy
