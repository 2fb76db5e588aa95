// Parsing JSON with limits on bytes, depth and values, so that no text from a file, a network or an
// environment variable can exhaust the stack or the memory; writing and describing JSON values.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

/// Limits of parse_json(). A parsed value takes up to about 80 bytes of memory.
struct JsonLimits {
  std::size_t bytes = std::size_t{64} << 20;
  int depth = 64;  ///< nesting of arrays and objects
  std::size_t values = 1'000'000;
};

/// Parses one JSON document. Throws Error (`category`) `[where] expected JSON, got …` for text that
/// is not JSON, that exceeds a limit, or that has the same key twice in one object.
nlohmann::json parse_json(std::string_view text, ErrorCategory category, std::string_view where,
                          const JsonLimits& limits = {});

/// A value formatted for a message, on one line and at most about 50 bytes: a number, a quoted and
/// shortened string, "an array of 3" or "an object of 2 keys". Does not recurse.
std::string describe_json(const nlohmann::json& value);

/// Serializes `value`, on one line or indented. Bytes that are not UTF-8 become U+FFFD, so string
/// content never causes an exception. Control characters, DEL and C1 too, are escaped. Recurses
/// into `value`: not for untrusted values.
std::string dump_json(const nlohmann::json& value, int indent = -1);
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1);

/// Serializes `value` for unpack_json() of another rank, in bytes (CBOR). Strings keep what is not
/// UTF-8.
std::string pack_json(const nlohmann::json& value);

/// The value given to pack_json(). Throws Error (communication) for other bytes.
nlohmann::json unpack_json(std::string_view packed);

}  // namespace lockstep::inline v0
