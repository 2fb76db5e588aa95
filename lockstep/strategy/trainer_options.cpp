#include "lockstep/strategy/trainer_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/metrics/make_metrics.h"

namespace lockstep::strategy {

namespace {

float scale(const TrainerOptions& options, std::int64_t global_batch) {
  if (options.base_batch <= 0)
    throw Error(ErrorCategory::input, "lr-scaling",
                "expected the global batch size that the learning rate refers to (--lr-base-batch)",
                fmt::format("got {}", options.base_batch));
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(options.base_batch);
  return static_cast<float>(options.rate_scaling == RateScaling::linear ? ratio : std::sqrt(ratio));
}

float peak_rate(const TrainerOptions& options) {
  const float peak = options.schedule.peak;
  const std::optional<float> rate = model::learning_rate_of(options.optimizer);
  if (rate && peak != *rate && peak != model::Schedule{}.peak)
    throw Error(ErrorCategory::input, "trainer",
                "expected one learning rate, of the optimizer or of the schedule",
                fmt::format("got learning_rate {} and peak {}", *rate, peak));
  return rate.value_or(peak);
}

/// "none" for an empty list.
std::string list_or_none(const std::vector<std::string>& texts) {
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

/// "mse of price (target cost, weight 0.5)", or the loss of the first output.
std::string describe_losses(const TrainerOptions& options) {
  if (options.losses.empty()) return model::to_string(options.loss);
  std::vector<std::string> texts;
  for (const OutputLoss& one : options.losses)
    texts.push_back(fmt::format("{} of {} (target {}, weight {})", model::to_string(one.loss),
                                one.output, one.target.empty() ? one.output : one.target,
                                one.weight));
  return list_or_none(texts);
}

/// "auc (exact), f1 of kind"
std::string describe_metrics(const TrainerOptions& options) {
  std::vector<std::string> texts;
  if (!options.metrics.empty()) texts.push_back(model::list_metrics(options.metrics));
  for (const OutputLoss& one : options.losses)
    if (!one.metrics.empty())
      texts.push_back(fmt::format("{} of {}", model::list_metrics(one.metrics), one.output));
  return list_or_none(texts);
}

std::string describe_schedule(const TrainerOptions& options) {
  const model::Schedule& schedule = options.schedule;
  const std::optional<float> rate = model::learning_rate_of(options.optimizer);
  return fmt::format(
      "{} (peak {}, {} warm-up steps, {} steps, final fraction {}, factor {} every {} steps, power "
      "{})",
      to_string(schedule.kind), rate.value_or(schedule.peak), schedule.warmup_steps,
      schedule.total_steps, schedule.final_fraction, schedule.step_factor, schedule.step_every,
      schedule.power);
}

std::string describe_scaling(const LossScaling& scaling) {
  switch (scaling.kind) {
    case LossScaling::Kind::none:
      return "none";
    case LossScaling::Kind::fixed:
      return fmt::format("{}", scaling.scale);
    case LossScaling::Kind::dynamic:
      break;
  }
  return fmt::format("dynamic from {}, doubled after {} good steps", scaling.scale,
                     scaling.steps_to_double);
}

std::string describe_rate_scaling(const TrainerOptions& options) {
  return options.rate_scaling == RateScaling::none
             ? "none"
             : fmt::format("{} from a batch of {}",
                           options.rate_scaling == RateScaling::linear ? "linear" : "sqrt",
                           options.base_batch);
}

}  // namespace

RateScaling parse_rate_scaling(std::string_view name) {
  static constexpr auto kNames = enum_names<RateScaling>(
      {{RateScaling::none, "none"}, {RateScaling::linear, "linear"}, {RateScaling::sqrt, "sqrt"}});
  return kNames.parse("lr-scaling", name);
}

TraceOptions parse_trace(std::string_view text) {
  static constexpr std::string_view kSteps = ":steps=";
  TraceOptions options;
  const std::size_t steps = text.rfind(kSteps);
  options.file = text.substr(0, steps);
  const auto number = [](std::string_view digits, std::int64_t otherwise) {
    if (digits.empty()) return otherwise;
    const std::int64_t given = parse_number<std::int64_t>(digits).value_or(0);
    return given < 1 ? -1 : given;
  };
  if (steps != std::string_view::npos) {
    const std::string_view range = text.substr(steps + kSteps.size());
    const std::size_t dash = range.find('-');
    options.first_step = number(range.substr(0, dash), 1);
    options.last_step =
        dash == std::string_view::npos ? options.first_step : number(range.substr(dash + 1), 0);
    if (range.empty() || range == "-") options.first_step = -1;
  }
  if (options.file.empty() || options.file == "-" || options.first_step < 1 ||
      options.last_step < 0 || (options.last_step > 0 && options.last_step < options.first_step))
    throw Error(ErrorCategory::input, "trace",
                "expected FILE or FILE:steps=FIRST-LAST, with steps counted from 1",
                fmt::format("got \"{}\"", text));
  return options;
}

std::string to_string(const ParameterGroup& group) {
  std::string text = group.pattern + ":";
  if (group.learning_rate) text += fmt::format("lr={}", *group.learning_rate);
  if (group.weight_decay)
    text += fmt::format("{}decay={}", group.learning_rate ? "," : "", *group.weight_decay);
  return text;
}

model::Network prepared(model::Network network, const TrainerOptions& options) {
  for (const ParameterGroup& group : options.groups) {
    const float peak = peak_rate(options);
    const float rate = group.learning_rate.value_or(peak);
    const float decay = group.weight_decay.value_or(0);
    if (!(rate >= 0 && decay >= 0 && std::isfinite(rate) && std::isfinite(decay)))
      throw Error(ErrorCategory::input, "group",
                  "expected a learning rate and a weight decay of 0 or more",
                  "got " + to_string(group));
    if (group.learning_rate && peak == 0)
      throw Error(ErrorCategory::input, "group",
                  "expected a learning rate above 0 for the parameters outside of groups", "got 0");
    network.set_group(group.pattern, group.learning_rate ? rate / peak : 1, group.weight_decay);
  }
  network.freeze(options.freeze);
  return network;
}

std::vector<std::pair<std::string, std::string>> settings_of(const TrainerOptions& options) {
  std::vector<std::string> groups;
  for (const ParameterGroup& group : options.groups) groups.push_back(to_string(group));
  std::vector<std::string> class_weights;
  for (const float weight : options.class_weights)
    class_weights.push_back(fmt::format("{}", weight));
  return {
      {"seed", fmt::format("{}", options.seed)},
      {"losses", describe_losses(options)},
      {"class weights", list_or_none(class_weights)},
      {"metrics", describe_metrics(options)},
      {"optimizer", to_string(options.optimizer)},
      {"learning-rate schedule", describe_schedule(options)},
      {"scaling of the learning rate", describe_rate_scaling(options)},
      {"moving average of the parameters", fmt::format("{}", options.ema)},
      {"frozen parameters", list_or_none(options.freeze)},
      {"groups of parameters", list_or_none(groups)},
      {"maximum gradient norm", fmt::format("{}", options.clip_norm)},
      {"micro-batches per step", fmt::format("{}", options.accumulate)},
      {"precision", to_string(options.precision)},
      {"loss scale", describe_scaling(loss_scaling_for(options.loss_scaling, options.precision))},
      {"scope of normalization", to_string(options.normalization)},
      {"gradient buckets",
       fmt::format("{} bytes as {}{}", options.buckets.bytes, to_string(options.buckets.wire),
                   options.tune_buckets ? ", tuned" : "")},
      {"recording of steps", options.records_steps ? "on" : "off"}};
}

std::string describe(const TrainerOptions& options) {
  std::string text;
  for (const auto& [name, value] : settings_of(options))
    text += fmt::format("{}: {}\n", name, value);
  return text;
}

LossPlan loss_plan(const TrainerOptions& options, const model::Network& network) {
  LossPlan plan{.loss = options.loss,
                .metrics = options.metrics,
                .metric_terms = std::vector<std::size_t>(options.metrics.size())};
  if (options.losses.empty()) return plan;
  std::vector<model::LossTerm> terms;
  for (const OutputLoss& one : options.losses) {
    const auto outputs = network.outputs();
    const auto found = std::ranges::find(outputs, one.output, &model::NetworkOutput::name);
    if (found == outputs.end()) {
      std::vector<std::string> names;
      for (const model::NetworkOutput& output : outputs) names.push_back(output.name);
      throw Error(
          ErrorCategory::input, "losses",
          fmt::format("expected an output of model {}: {}", network.name(), fmt::join(names, ", ")),
          fmt::format("got \"{}\"", one.output));
    }
    const auto output = static_cast<std::size_t>(found - outputs.begin());
    if (std::ranges::find(terms, output, &model::LossTerm::output) != terms.end())
      throw Error(ErrorCategory::input, "losses", "expected one loss for each output",
                  fmt::format("got two for {}", one.output));
    if (!(one.weight > 0 && std::isfinite(one.weight)))
      throw Error(ErrorCategory::input, "losses",
                  fmt::format("expected a weight above 0 for {}", one.output),
                  fmt::format("got {}", one.weight));
    const auto add = [&](std::shared_ptr<const model::Metric> metric) {
      plan.metrics.push_back(std::move(metric));
      plan.metric_terms.push_back(terms.size());
    };
    if (options.losses.size() > 1)
      add(model::make_loss_metric(one.output, one.loss,
                                  model::row_width(one.loss, network.shape(found->node))));
    for (const auto& metric : one.metrics) add(model::with_output_name(one.output, metric));
    terms.push_back({.loss = one.loss,
                     .output = output,
                     .target = one.target.empty() ? one.output : one.target,
                     .weight = one.weight});
  }
  plan.loss = model::TotalLoss(std::move(terms));
  return plan;
}

model::Schedule effective_schedule(const TrainerOptions& options, std::int64_t global_batch,
                                   std::int64_t total_steps) {
  model::Schedule schedule = options.schedule;
  schedule.peak = peak_rate(options);
  if (schedule.total_steps == 0) schedule.total_steps = total_steps;
  if (options.rate_scaling != RateScaling::none) schedule.peak *= scale(options, global_batch);
  schedule.check();
  return schedule;
}

}  // namespace lockstep::strategy
