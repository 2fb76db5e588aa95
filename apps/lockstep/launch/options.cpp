#include "apps/lockstep/launch/options.h"

#include <nlohmann/json.hpp>

namespace lockstep::apps::launch {

std::string to_text(const Ending& ending) { return nlohmann::json({ending.status, ending.message}).dump(); }

Ending parse_ending(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.status = json.at(0).get<int>(), .message = json.at(1).get<std::string>()};
}

}  // namespace lockstep::apps::launch
