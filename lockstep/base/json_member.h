// The members of a JSON object as C++ values.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/base/json.h"

namespace lockstep {

/// The member `key` of `object`. Throws std::invalid_argument, with a reason to put into an Error,
/// unless `object` is an object whose `key` is a T.
template <typename T>
T json_member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) throw std::invalid_argument("it is " + describe_json(object));
  const auto found = object.find(key);
  if (found == object.end()) throw std::invalid_argument(fmt::format("it has no \"{}\"", key));
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument(fmt::format("its \"{}\" is {}", key, describe_json(*found)));
  }
}

}  // namespace lockstep
