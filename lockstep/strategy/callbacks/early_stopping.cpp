#include "lockstep/strategy/callbacks/early_stopping.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::strategy {
namespace {

constexpr const char* kEarlyStop = "early-stop";

}  // namespace

EarlyStoppingOptions parse_early_stopping(std::string_view text) {
  constexpr std::string_view kOption = "--early-stop";
  constexpr std::string_view kKeys[] = {"patience", "min_delta"};
  const MonitoredOption parsed = parse_monitored(kOption, text, kKeys);
  EarlyStoppingOptions options{.metric = parsed.metric};
  options.patience = parsed.count(kOption, "patience", options.patience, 1);
  options.min_delta = parsed.number(kOption, "min_delta", options.min_delta);
  return options;
}

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) {
  if (options_.patience < 1)
    throw Error(ErrorCategory::input, kEarlyStop, "expected a patience of at least 1 epoch",
                fmt::format("got {}", options_.patience));
}

void EarlyStopping::on_train_begin(const TrainBegin& begin) {
  options_.metric.check(kEarlyStop, begin.known_metrics);
  best_.reset();
  best_step_ = wait_ = 0;
}

void EarlyStopping::on_epoch_end(const EpochLogs& logs) {
  if (logs.complete) observe(logs);  // a run that resumes reports the others again
}

void EarlyStopping::on_validation(const EpochLogs& logs) {
  if (options_.metric.is_of_validation()) observe(logs);
}

void EarlyStopping::observe(const EpochLogs& logs) {
  const std::optional<double> value = logs.metric(options_.metric.name);
  if (options_.metric.improves(value, best_, options_.min_delta)) {
    best_ = value;
    best_step_ = logs.step;
    wait_ = 0;
    return;
  }
  ++wait_;
  stop_if_exhausted();
}

void EarlyStopping::stop_if_exhausted() {
  if (wait_ < options_.patience) return;
  const std::string& metric = options_.metric.name;
  request_stop(best_ ? fmt::format("{} has not improved since step {}, when it was {:.6g}", metric,
                                   best_step_, *best_)
                     : fmt::format("{} was never finite", metric));
}

std::string EarlyStopping::name() const { return "early_stopping:" + options_.metric.name; }

checkpoint::Configuration EarlyStopping::state() const {
  nlohmann::json state = {{"wait", wait_}};
  if (best_) {
    state["best"] = *best_;
    state["best_step"] = best_step_;
  }
  return state;
}

void EarlyStopping::restore(const checkpoint::Configuration& state) {
  wait_ = state->at("wait").get<std::int64_t>();
  if (state->contains("best")) {
    best_ = state->at("best").get<double>();
    best_step_ = state->at("best_step").get<std::int64_t>();
  }
  stop_if_exhausted();
}

}  // namespace lockstep::strategy
