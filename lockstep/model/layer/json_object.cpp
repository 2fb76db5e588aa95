#include "lockstep/model/layer/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::model {

using nlohmann::json;

JsonObject::JsonObject(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object())
    refuse("expected an object {...}", fmt::format("got {}", describe_json(object_)));
}

void JsonObject::refuse(std::string_view expected, std::string_view actual) const {
  throw Error(ErrorCategory::input, where_, expected, actual);
}

void JsonObject::refuse_value(const char* key, std::string_view expected,
                              const json& actual) const {
  refuse(fmt::format("expected \"{}\" to be {}", key, expected),
         fmt::format("got {}", describe_json(actual)));
}

const json* JsonObject::find(const char* key) {
  if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

bool JsonObject::has(const char* key) { return find(key) != nullptr; }

const json& JsonObject::required(const char* key) {
  const json* value = find(key);
  if (value == nullptr) refuse(fmt::format("expected \"{}\"", key), "the key is missing");
  return *value;
}

std::string JsonObject::text(const char* key) {
  const json& value = required(key);
  if (!value.is_string()) refuse_value(key, "a string", value);
  return value.get<std::string>();
}

std::string JsonObject::text(const char* key, std::string_view fallback) {
  return has(key) ? text(key) : std::string(fallback);
}

std::optional<std::int64_t> JsonObject::as_count(const json& value) const {
  // The parser stores every nonnegative integer as unsigned.
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number < 1 || number > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()))
    return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::int64_t JsonObject::count(const char* key) {
  const json& value = required(key);
  const auto result = as_count(value);
  if (!result) refuse_value(key, "a positive integer", value);
  return *result;
}

std::int64_t JsonObject::count(const char* key, std::int64_t fallback) {
  return has(key) ? count(key) : fallback;
}

std::int64_t JsonObject::integer(const char* key, std::int64_t fallback) {
  if (!has(key)) return fallback;
  const json& value = required(key);
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max()
                        : value.is_number_integer() &&
                              value.get<std::int64_t>() >= std::numeric_limits<std::int32_t>::min();
  if (!fits) refuse_value(key, "an integer", value);
  return value.get<std::int64_t>();
}

float JsonObject::number(const char* key, float fallback) {
  if (!has(key)) return fallback;
  const json& value = required(key);
  if (!value.is_number()) refuse_value(key, "a number", value);
  return value.get<float>();
}

bool JsonObject::flag(const char* key, bool fallback) {
  if (!has(key)) return fallback;
  const json& value = required(key);
  if (!value.is_boolean()) refuse_value(key, "true or false", value);
  return value.get<bool>();
}

Extent2D JsonObject::extent(const char* key) {
  const json& value = required(key);
  if (const auto both = as_count(value)) return Extent2D(*both);
  if (value.is_array() && value.size() == 2) {
    const auto height = as_count(value[0]);
    const auto width = as_count(value[1]);
    if (height && width) return Extent2D(*height, *width);
  }
  refuse_value(key, "a positive integer or [height, width]", value);
}

Extent2D JsonObject::extent(const char* key, Extent2D fallback) {
  return has(key) ? extent(key) : fallback;
}

std::vector<std::int64_t> JsonObject::counts(const char* key) {
  const json& value = required(key);
  constexpr const char* kNeeded = "a list of positive integers";
  if (!value.is_array() || value.empty()) refuse_value(key, kNeeded, value);
  std::vector<std::int64_t> result;
  for (const json& element : value) {
    const auto number = as_count(element);
    if (!number) refuse_value(key, kNeeded, element);
    result.push_back(*number);
  }
  return result;
}

std::vector<std::string> JsonObject::texts(const char* key) {
  const json& value = required(key);
  const bool all_text = value.is_array() && std::ranges::all_of(value, [](const json& element) {
                          return element.is_string();
                        });
  if (!all_text) refuse_value(key, "a list of strings", value);
  return value.get<std::vector<std::string>>();
}

// Adds the location and the key to the error of `parse`.
template <typename Parse>
auto JsonObject::word(const char* key, std::string_view fallback, Parse parse) {
  const std::string name = text(key, fallback);
  try {
    return parse(name);
  } catch (const Error& error) {
    refuse(fmt::format("expected a known name for \"{}\"", key), error.what());
  }
}

Padding JsonObject::padding(const char* key) { return word(key, "valid", parse_padding); }

Interpolation JsonObject::interpolation(const char* key) {
  return word(key, "nearest", parse_interpolation);
}

Initializer::Kind JsonObject::initializer(const char* key) {
  return word(key, "glorot_uniform", parse_initializer);
}

void JsonObject::finish() const {
  for (const auto& [key, value] : object_.items())
    if (std::ranges::find(known_, key) == known_.end())
      refuse(fmt::format("expected one of the keys {}", list_names(known_)), got_name(key, known_));
}

void write_extent(json& object, const char* key, Extent2D extent) {
  object[key] = {extent.height, extent.width};
}

}  // namespace lockstep::inline v0::model
