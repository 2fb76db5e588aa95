#include "strategy/configuration.h"

#include <nlohmann/json.hpp>

namespace lockstep::strategy {

Configuration::Configuration() : Configuration(nlohmann::json::object()) {}
Configuration::Configuration(const nlohmann::json& object) : object_(std::make_unique<nlohmann::json>(object)) {}
Configuration::Configuration(const Configuration& other) : Configuration(*other) {}
Configuration::~Configuration() = default;

Configuration& Configuration::operator=(const Configuration& other) {
  *object_ = *other;
  return *this;
}

}  // namespace lockstep::strategy
