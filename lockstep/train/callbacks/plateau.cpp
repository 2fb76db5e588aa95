#include "lockstep/train/callbacks/plateau.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/json/json_member.h"

namespace lockstep::inline v0::train {
namespace {

constexpr const char* kPlateau = "reduce-on-plateau";

}  // namespace

PlateauOptions parse_plateau(std::string_view text) {
  Spec spec = Spec::parse("--reduce-on-plateau", text);
  PlateauOptions options{.metric = read_monitored(spec)};
  spec.read("factor", options.factor);
  if (!(options.factor > 0 && options.factor < 1))
    spec.refuse("factor", "expected factor to be above 0 and below 1");
  spec.read("patience", options.patience, 1);
  spec.read("min_delta", options.min_delta, 0);
  spec.read("cooldown", options.cooldown, 0);
  spec.read("min_lr", options.min_rate, 0);
  spec.finish();
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
  if (logs.complete) observe(logs);  // a resuming run reports the others again
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
  // A scheduled rate below the bound, as in a warm-up, is unchanged.
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

}  // namespace lockstep::inline v0::train
