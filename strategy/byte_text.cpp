#include "strategy/byte_text.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::strategy {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "percent-encoded:";

bool is_utf8(std::string_view bytes) {
  try {
    (void)json(bytes).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

template <typename Change>
json change_strings(const json& value, Change change) {
  if (value.is_string()) return change(value.get_ref<const std::string&>());
  json changed = value;
  if (value.is_structured())
    for (json& element : changed) element = change_strings(std::as_const(element), change);
  return changed;
}

}  // namespace

std::string encode_bytes(std::string_view bytes) {
  if (!bytes.starts_with(kPrefix) && is_utf8(bytes)) return std::string(bytes);
  std::string text(kPrefix);
  for (const char byte : bytes) {
    if (byte >= ' ' && byte <= '~' && byte != '%')
      text += byte;
    else
      text += fmt::format("%{:02X}", static_cast<unsigned char>(byte));
  }
  return text;
}

std::string decode_bytes(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::string(text);
  std::string bytes;
  for (std::size_t i = kPrefix.size(); i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      bytes += static_cast<char>(byte);
      i += 2;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

json encode_strings(const json& value) {
  return change_strings(value, [](const std::string& s) { return encode_bytes(s); });
}
json decode_strings(const json& value) {
  return change_strings(value, [](const std::string& s) { return decode_bytes(s); });
}

}  // namespace lockstep::strategy
