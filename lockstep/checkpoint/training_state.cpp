#include "lockstep/checkpoint/training_state.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

constexpr int kStateFormat = 1;  // of state.json

double number_or_nan(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
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
    parsed.at("step").get_to(state.step);
    parsed.at("epoch").get_to(state.epoch);
    parsed.at("seed").get_to(state.seed);
    parsed.at("global_batch").get_to(state.global_batch);
    parsed.at("precision").get_to(state.precision);
    state.loss_scale = number_or_nan(parsed.at("loss_scale"));
    for (const auto& [name, value] : parsed.at("metrics").items())
      state.metrics[name] = number_or_nan(value);
    *state.configuration = decode_strings(parsed.at("configuration"));
    return state;
  } catch (const json::exception& error) {
    throw Error(ErrorCategory::checkpoint, where, "expected the state of a training run",
                error.what());
  }
}

Resume parse_resume(std::string_view name) {
  static constexpr auto kNames = enum_names<Resume>({{Resume::automatic, "auto"},
                                                     {Resume::never, "never"},
                                                     {Resume::must, "require"},
                                                     {Resume::must, "must"}});
  return kNames.parse("--resume", name);
}

VerifyCheckpoint parse_verify_checkpoint(std::string_view name) {
  static constexpr auto kNames =
      enum_names<VerifyCheckpoint>({{VerifyCheckpoint::automatic, "auto"},
                                    {VerifyCheckpoint::full, "full"},
                                    {VerifyCheckpoint::hash, "hash"},
                                    {VerifyCheckpoint::none, "none"}});
  return kNames.parse("--verify-checkpoint", name);
}

}  // namespace lockstep::checkpoint
