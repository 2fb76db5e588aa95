#include "apps/lockstep/train/train_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps {
namespace {

/// How long a training on up to `records` is.
struct Length {
  std::int64_t records;
  std::int64_t epochs;  ///< without validation data
  std::int64_t limit;   ///< with validation data: the most epochs
  std::int64_t patience;
};
constexpr Length kLengths[] = {
    {100, 200, 1000, 20},   {1000, 40, 1000, 20},
    {10'000, 30, 500, 10},  {100'000, 30, 150, 5},
    {1'000'000, 10, 50, 5}, {std::numeric_limits<std::int64_t>::max(), 3, 15, 5}};

const Length& length_for(std::int64_t records) {
  return *std::ranges::find_if(kLengths,
                               [&](const Length& length) { return records <= length.records; });
}

/// The learning rate for a network and an optimizer.
float default_rate(const TrainArguments& arguments, const model::Network& network) {
  constexpr float kFineTuning = 1e-4f;
  constexpr float kAttention = 3e-4f;
  constexpr float kLinear = 1e-2f;
  const auto count = [&](auto is_counted) {
    return std::ranges::count_if(network.nodes(), is_counted);
  };
  if (!arguments.pretrained.path.empty() && arguments.trainer.freeze.empty()) return kFineTuning;
  if (std::holds_alternative<model::Sgd>(arguments.trainer.optimizer)) return kLinear;
  if (count([](const model::Node& node) { return node.layer->kind() == "attention"; }) > 0)
    return kAttention;
  const auto trained = count([](const model::Node& node) { return !node.parameters.empty(); });
  return trained == 1 ? kLinear : model::Schedule{}.peak_rate();
}

}  // namespace

std::int64_t default_epochs(std::int64_t records) { return length_for(records).epochs; }

void choose_defaults(TrainArguments& arguments, const model::Network& network, std::int64_t records,
                     bool has_validation) {
  model::Schedule& schedule = arguments.trainer.schedule;
  if (!schedule.peak) schedule.peak = default_rate(arguments, network);
  train::FitOptions& fit = arguments.fit;
  if (fit.epochs || fit.steps > 0) return;
  const Length& length = length_for(records);
  if (!has_validation || (schedule.depends_on_end() && !arguments.early_stopping)) {
    fit.epochs = length.epochs;
    arguments.length =
        fmt::format("{}; --epochs sets another length{}", counted(length.epochs, "epoch"),
                    has_validation ? fmt::format(" of --lr-schedule {}", to_string(schedule.kind))
                                   : ", --validation-split 0.2 lets the data end the training");
    return;
  }
  fit.epochs = length.limit;
  const std::int64_t validations =
      fit.validate_every == 0 ? 1 : 1 + records / arguments.samples_of_step() / fit.validate_every;
  auto& early = arguments.early_stopping;
  if (!early) early.emplace().patience = static_cast<int>(validations * length.patience);
  arguments.length =
      fmt::format("at most {}, until {} has not improved for {}; --epochs sets another length",
                  counted(length.limit, "epoch"), early->metric.name,
                  counted(early->patience, fit.validate_every == 0 ? "epoch" : "validation"));
}

}  // namespace lockstep::inline v0::apps
