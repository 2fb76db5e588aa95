// The members of tokenizer.json. Problems are std::invalid_argument until parse_tokenizer_file()
// adds the name of the file.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0::data {

/// Throws std::invalid_argument with the reason `what`.
[[noreturn]] inline void refuse_tokenizer(const std::string& what) {
  throw std::invalid_argument(what);
}

/// The member of an object, null if it has none.
inline const nlohmann::json& member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

/// The member, `otherwise` if it is missing or null.
template <typename T>
T optional_member(const nlohmann::json& object, const char* key, T otherwise) {
  return member(object, key).is_null() ? otherwise : json_member<T>(object, key);
}

/// The member "type", empty if it has none.
inline std::string type_of(const nlohmann::json& object) {
  return optional_member<std::string>(object, "type", "");
}

}  // namespace lockstep::inline v0::data
