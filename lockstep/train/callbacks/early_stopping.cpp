#include "lockstep/train/callbacks/early_stopping.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0::train {
namespace {

constexpr const char* kEarlyStop = "early-stop";

}  // namespace

EarlyStoppingOptions parse_early_stopping(std::string_view text) {
  Spec spec = Spec::parse("--early-stop", text);
  EarlyStoppingOptions options{.metric = read_monitored(spec)};
  spec.read("patience", options.patience, 1);
  spec.read("min_delta", options.min_delta, 0);
  spec.finish();
  return options;
}

EarlyStopping::EarlyStopping(EarlyStoppingOptions options)
    : monitor_(std::move(options.metric), options.min_delta), patience_(options.patience) {
  if (patience_ < 1)
    throw Error(ErrorCategory::input, kEarlyStop, "expected a patience of at least 1 epoch",
                fmt::format("got {}", patience_));
}

void EarlyStopping::on_train_begin(const TrainBegin& begin) {
  monitor_.begin(kEarlyStop, begin.known_metrics);
  wait_ = 0;
}

void EarlyStopping::on_epoch_end(const EpochLogs& logs) {
  if (logs.complete) observe(logs);  // a resuming run reports the others again
}

void EarlyStopping::on_validation(const EpochLogs& logs) { observe(logs); }

void EarlyStopping::observe(const EpochLogs& logs) {
  const std::optional<bool> is_better = monitor_.observe(logs);
  if (!is_better) return;
  wait_ = *is_better ? 0 : wait_ + 1;
  stop_if_exhausted();
}

void EarlyStopping::stop_if_exhausted() {
  if (wait_ < patience_) return;
  const std::string& metric = monitor_.metric().name;
  const std::optional<double>& best = monitor_.best();
  request_stop(best ? fmt::format("{} has not improved since step {}, when it was {:.6g}", metric,
                                  monitor_.best_step(), *best)
                    : fmt::format("{} was never finite", metric));
}

std::string EarlyStopping::name() const { return "early_stopping:" + monitor_.metric().name; }

checkpoint::Configuration EarlyStopping::state() const {
  nlohmann::json state = {{"wait", wait_}};
  monitor_.save(state);
  return state;
}

void EarlyStopping::restore(const checkpoint::Configuration& state) {
  wait_ = json_member<std::int64_t>(*state, "wait");
  monitor_.restore(*state);
  stop_if_exhausted();
}

}  // namespace lockstep::inline v0::train
