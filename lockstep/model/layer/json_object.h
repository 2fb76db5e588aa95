// Reading and writing the objects of a network description.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/layer/window.h"

namespace lockstep::inline v0::model {

/// One object of a JSON description, read key by key. Every key that is read becomes a known key,
/// so finish() can refuse the others by name. Keeps a reference to the JSON value, which must
/// outlive it. All functions throw Error (input).
class JsonObject {
 public:
  /// Refuses anything but an object.
  JsonObject(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }

  bool has(const char* key);
  /// The value of a required key.
  const nlohmann::json& required(const char* key);

  std::string text(const char* key);
  std::string text(const char* key, std::string_view fallback);
  /// An integer from 1 to 2^31 - 1.
  std::int64_t count(const char* key);
  std::int64_t count(const char* key, std::int64_t fallback);
  /// An integer of 32 bits, of any sign.
  std::int64_t integer(const char* key, std::int64_t fallback);
  float number(const char* key, float fallback);
  bool flag(const char* key, bool fallback);
  /// One count for both, or [height, width].
  Extent2D extent(const char* key);
  Extent2D extent(const char* key, Extent2D fallback);
  /// A list of counts, such as a shape.
  std::vector<std::int64_t> counts(const char* key);
  std::vector<std::string> texts(const char* key);
  Padding padding(const char* key);                ///< valid if the key is missing
  Interpolation interpolation(const char* key);    ///< nearest if the key is missing
  Initializer::Kind initializer(const char* key);  ///< glorot_uniform if the key is missing

  /// Refuses keys that were not read.
  void finish() const;

  [[noreturn]] void refuse(std::string_view expected, std::string_view actual) const;

 private:
  const nlohmann::json* find(const char* key);
  [[noreturn]] void refuse_value(const char* key, std::string_view expected,
                                 const nlohmann::json& actual) const;
  template <typename Parse>
  auto word(const char* key, std::string_view fallback, Parse parse);
  std::optional<std::int64_t> as_count(const nlohmann::json& value) const;

  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string_view> known_;
};

/// Sets `key` of `object` to [height, width], as JsonObject::extent() reads it.
void write_extent(nlohmann::json& object, const char* key, Extent2D extent);

}  // namespace lockstep::inline v0::model
