// The members of a JSON object as C++ values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/base/json/json.h"

namespace lockstep::inline v0 {
namespace detail {

template <typename T>
concept JsonText = std::is_same_v<T, std::string>;
template <typename T>
concept JsonList = !JsonText<T> && !std::is_same_v<T, nlohmann::json> && requires {
  typename T::value_type;
}
&&!requires { typename T::mapped_type; };

/// What a T is in JSON: "an integer", "a list of strings".
template <typename T>
std::string json_kind() {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_unsigned_v<T>)
    return "an integer of 0 or more";
  else if constexpr (std::is_integral_v<T>)
    return "an integer";
  else if constexpr (std::is_floating_point_v<T>)
    return "a number";
  else if constexpr (JsonText<T>)
    return "a string";
  else if constexpr (JsonList<T>) {
    // The kind of an element without its article, in the plural.
    std::string element = json_kind<typename T::value_type>();
    if constexpr (std::is_arithmetic_v<typename T::value_type> || JsonText<typename T::value_type>)
      return "a list of " + element.substr(element.find(' ') + 1) + "s";
    return "a list";
  } else {
    return "an object";
  }
}

/// Whether `value` is a T, without the conversions of nlohmann-json, such as 1.5 or true to 1.
template <typename T>
bool is_json_of(const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value.is_boolean();
  else if constexpr (std::is_integral_v<T>)
    return value.is_number_unsigned()
               ? std::in_range<T>(value.get<std::uint64_t>())
               : value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
  else if constexpr (std::is_floating_point_v<T>)
    return value.is_number();
  else if constexpr (JsonList<T>)
    return value.is_array() && std::ranges::all_of(value, is_json_of<typename T::value_type>);
  else
    return true;
}

}  // namespace detail

/// The member `key` of `object`. Throws std::invalid_argument, with a reason for an Error, unless
/// `object` is an object whose `key` is a T.
template <typename T>
T json_member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) throw std::invalid_argument("it is " + describe_json(object));
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument(fmt::format("it has no \"{}\"", key));
  try {
    if (detail::is_json_of<T>(*found)) return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    // The error below has no text of the library, which names neither the key nor the value.
  }
  throw std::invalid_argument(
      fmt::format("its \"{}\" is {}, not {}", key, describe_json(*found), detail::json_kind<T>()));
}

/// The member `key` of `object`, or `otherwise` if an object has no such member.
template <typename T>
T json_member(const nlohmann::json& object, const char* key, T otherwise) {
  return object.is_object() && !object.contains(key) ? std::move(otherwise)
                                                     : json_member<T>(object, key);
}

}  // namespace lockstep::inline v0
