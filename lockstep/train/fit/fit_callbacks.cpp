#include "lockstep/train/fit/fit_callbacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/text.h"
#include "lockstep/job/agreement.h"

namespace lockstep::inline v0::train {

void FitCallbacks::begin() {
  std::set<std::string> names;
  for (const auto& callback : callbacks_)
    if (const std::string name = callback->name(); !name.empty() && !names.insert(name).second)
      throw Error(ErrorCategory::input, "callbacks",
                  "expected different names of the callbacks that have a state",
                  fmt::format("got two with the name {}", name));
  change_rate_ = strategy_.ranks().any(std::ranges::any_of(
      callbacks_, [](const auto& callback) { return callback->changes_rate(); }));
}

void FitCallbacks::pass_on(Callback& from, std::int64_t step) const {
  for (ScalarLogs& scalar : std::exchange(from.scalars_, {})) {
    scalar.step = step;
    for (const auto& callback : callbacks_) callback->on_scalar(scalar);
  }
}

void FitCallbacks::notify(const std::exception& error) const noexcept {
  for (const auto& callback : callbacks_) {
    try {
      callback->on_exception(error);
    } catch (...) {
      // The error that ends the training is the one to report.
    }
  }
}

float FitCallbacks::learning_rate(std::int64_t step, float scheduled) const {
  if (!change_rate_) return scheduled;
  float rate = scheduled;
  for (const auto& callback : callbacks_) rate = callback->learning_rate(step, rate);
  strategy_.ranks().broadcast(std::as_writable_bytes(std::span(&rate, 1)), 0);
  if (!(rate >= 0) || !std::isfinite(rate))
    throw Error(ErrorCategory::input, "callbacks",
                fmt::format("expected a learning rate of 0 or more for step {}", step + 1),
                fmt::format("got {}", rate));
  return rate;
}

checkpoint::Configuration FitCallbacks::states() const {
  nlohmann::json states = nlohmann::json::object();
  for (const auto& callback : callbacks_)
    if (const std::string name = callback->name(); !name.empty()) states[name] = *callback->state();
  // Every rank writes the state of the chief, so that the ranks' checkpoints are the same.
  const std::string mine = strategy_.is_chief() ? dump_json(encode_strings(states)) : "";
  const std::string chief_states = job::Agreement(strategy_.ranks()).gather(mine).front();
  return decode_strings(parse_json(chief_states, ErrorCategory::communication, "callbacks"));
}

namespace {

[[noreturn]] void refuse_state(std::string_view callback, std::string_view actual) {
  throw Error(ErrorCategory::checkpoint, "resume",
              fmt::format("expected a state of the callback {}", callback), actual);
}

}  // namespace

void FitCallbacks::restore(const checkpoint::Configuration& states) const {
  for (const auto& callback : callbacks_) {
    const std::string name = callback->name();
    if (name.empty() || !states->contains(name)) continue;
    try {
      callback->restore(checkpoint::Configuration(states->at(name)));
    } catch (const std::invalid_argument& reason) {
      refuse_state(name, reason.what());
    } catch (const nlohmann::json::exception&) {  // thrown by a user-defined callback
      refuse_state(name, fmt::format("got {} with members that it does not read",
                                     describe_json(states->at(name))));
    }
  }
}

}  // namespace lockstep::inline v0::train
