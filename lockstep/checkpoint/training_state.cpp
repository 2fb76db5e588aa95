#include "lockstep/checkpoint/training_state.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using nlohmann::json;

constexpr int kStateFormat = 1;

double number_or_nan(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                   : json_member<double>(object, name);
}

}  // namespace

Configuration::Configuration() : Configuration(nlohmann::json::object()) {}
Configuration::Configuration(const nlohmann::json& object)
    : object_(std::make_unique<nlohmann::json>(object)) {}
Configuration::Configuration(const Configuration& other) : Configuration(*other) {}
Configuration::~Configuration() = default;

Configuration& Configuration::operator=(const Configuration& other) {
  *object_ = *other;
  return *this;
}

std::string to_json_text(const TrainingState& state) {
  const nlohmann::ordered_json text = {{"format", kStateFormat},
                                       {"step", state.step},
                                       {"epoch", state.epoch},
                                       {"seed", state.seed},
                                       {"global_batch", state.global_batch},
                                       {"precision", state.precision},
                                       {"loss_scale", state.loss_scale},
                                       {"metrics", state.metrics},
                                       {"configuration", encode_strings(*state.configuration)}};
  return dump_json(text, 2) + "\n";
}

TrainingState parse_training_state(const std::string& text, const std::string& where) {
  const json parsed = parse_json(text, ErrorCategory::checkpoint, where);
  try {
    TrainingState state;
    state.step = json_member<std::int64_t>(parsed, "step");
    state.epoch = json_member<std::int64_t>(parsed, "epoch");
    state.seed = json_member<std::uint64_t>(parsed, "seed");
    state.global_batch = json_member<std::int64_t>(parsed, "global_batch");
    state.precision = json_member<std::string>(parsed, "precision");
    state.loss_scale = number_or_nan(parsed, "loss_scale");
    const json metrics = json_member<json::object_t>(parsed, "metrics");
    for (const auto& [name, value] : metrics.items())
      state.metrics[name] = number_or_nan(metrics, name.c_str());
    *state.configuration = decode_strings(json_member<json::object_t>(parsed, "configuration"));
    return state;
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorCategory::checkpoint, where, "expected the state of a training run",
                error.what());
  }
}

}  // namespace lockstep::inline v0::checkpoint
