#include "apps/lockstep/launch/options.h"

#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/join_request.h"
#include "lockstep/base/json.h"

namespace lockstep::apps::launch {
namespace {

constexpr int kMaxStatus = 255;
constexpr std::size_t kMaxMessage = std::size_t{64} << 10;

}  // namespace

std::string to_text(const Ending& ending) {
  return dump_json(nlohmann::json({ending.status, ending.message.substr(0, kMaxMessage)}));
}

Ending parse_ending(const std::string& text) {
  const nlohmann::json json = parse_fields(text, 8);
  return {.status = integer_of(element(json, 0), 0, kMaxStatus), .message = text_of(element(json, 1), 4 * kMaxMessage)};
}

}  // namespace lockstep::apps::launch
