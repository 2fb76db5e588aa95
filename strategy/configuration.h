// What a run was started with, as the program that started it understands it: one JSON object.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

namespace lockstep::strategy {

/// A JSON object as a value, empty at first. Who looks inside includes <nlohmann/json.hpp>, which takes a compiler
/// longer than most of what includes this.
class Configuration {
 public:
  Configuration();
  /// Takes a copy.
  Configuration(const nlohmann::json& object);           // NOLINT(google-explicit-constructor): it is that object
  Configuration(const Configuration& other);             ///< copies the object, not the place
  Configuration& operator=(const Configuration& other);  ///< Likewise.
  ~Configuration();

  nlohmann::json& operator*() { return *object_; }                    ///< the object
  const nlohmann::json& operator*() const { return *object_; }        ///< the object
  nlohmann::json* operator->() { return object_.get(); }              ///< the object's members
  const nlohmann::json* operator->() const { return object_.get(); }  ///< the object's members

 private:
  std::unique_ptr<nlohmann::json> object_;
};

}  // namespace lockstep::strategy
