#include "lockstep/strategy/callbacks/plateau.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json_member.h"

namespace lockstep::strategy {
namespace {

constexpr const char* kPlateau = "reduce-on-plateau";

}  // namespace

PlateauOptions parse_plateau(std::string_view text) {
  constexpr std::string_view kOption = "--reduce-on-plateau";
  constexpr std::string_view kKeys[] = {"factor", "patience", "min_delta", "cooldown", "min_lr"};
  const MonitoredOption parsed = parse_monitored(kOption, text, kKeys);
  PlateauOptions options{.metric = parsed.metric};
  options.factor = parsed.number(kOption, "factor", options.factor);
  if (!(options.factor > 0 && options.factor < 1))
    throw Error(ErrorCategory::input, kOption, "expected factor to be above 0 and below 1",
                fmt::format("got {}", options.factor));
  options.patience = parsed.count(kOption, "patience", options.patience, 1);
  options.min_delta = parsed.number(kOption, "min_delta", options.min_delta);
  options.cooldown = parsed.count(kOption, "cooldown", options.cooldown, 0);
  options.min_rate = parsed.number(kOption, "min_lr", options.min_rate);
  return options;
}

ReduceOnPlateau::ReduceOnPlateau(PlateauOptions options)
    : options_(std::move(options)), monitor_(options_.metric, options_.min_delta) {
  if (options_.patience < 1 || !(options_.factor > 0 && options_.factor < 1))
    throw Error(ErrorCategory::input, kPlateau,
                "expected a patience of at least 1 epoch and a factor above 0 and below 1",
                fmt::format("got {} and {}", options_.patience, options_.factor));
}

void ReduceOnPlateau::on_train_begin(const TrainBegin& begin) {
  monitor_.begin(kPlateau, begin.known_metrics);
  factor_ = 1;
  wait_ = cooldown_ = 0;
}

void ReduceOnPlateau::on_epoch_end(const EpochLogs& logs) {
  if (logs.complete) observe(logs);  // a run that resumes reports the others again
}

void ReduceOnPlateau::on_validation(const EpochLogs& logs) { observe(logs); }

void ReduceOnPlateau::observe(const EpochLogs& logs) {
  const std::optional<bool> is_better = monitor_.observe(logs);
  if (!is_better) return;
  if (*is_better) {
    wait_ = 0;
  } else if (cooldown_ == 0) {
    ++wait_;
  }
  if (cooldown_ > 0) --cooldown_;
  if (wait_ < options_.patience) return;
  factor_ *= options_.factor;
  wait_ = 0;
  cooldown_ = options_.cooldown;
}

float ReduceOnPlateau::learning_rate(std::int64_t /*step*/, float rate) {
  const auto reduced = static_cast<float>(static_cast<double>(rate) * factor_);
  // A rate that the schedule has below the bound, as in a warm-up, stays as it is.
  return std::max(reduced, std::min(rate, static_cast<float>(options_.min_rate)));
}

std::string ReduceOnPlateau::name() const { return "reduce_on_plateau:" + options_.metric.name; }

checkpoint::Configuration ReduceOnPlateau::state() const {
  nlohmann::json state = {{"factor", factor_}, {"wait", wait_}, {"cooldown", cooldown_}};
  monitor_.save(state);
  return state;
}

void ReduceOnPlateau::restore(const checkpoint::Configuration& state) {
  factor_ = json_member<double>(*state, "factor");
  wait_ = json_member<std::int64_t>(*state, "wait");
  cooldown_ = json_member<std::int64_t>(*state, "cooldown");
  monitor_.restore(*state);
}

}  // namespace lockstep::strategy
