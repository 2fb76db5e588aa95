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

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/model/metrics/make_metrics.h"

namespace lockstep::inline v0::strategy {

namespace {

float scale(const TrainerOptions& options, std::int64_t global_batch) {
  if (options.base_batch <= 0)
    throw Error(ErrorCategory::input, "lr-scaling",
                "expected the global batch size that the learning rate refers to (--lr-base-batch)",
                fmt::format("got {}", options.base_batch));
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(options.base_batch);
  return static_cast<float>(options.rate_scaling == RateScaling::linear ? ratio : std::sqrt(ratio));
}

}  // namespace

float peak_rate(const TrainerOptions& options) {
  const std::optional<float>& peak = options.schedule.peak;
  const std::optional<float> rate = model::learning_rate_of(options.optimizer);
  if (rate && peak && *peak != *rate)
    throw Error(ErrorCategory::input, "trainer",
                "expected one learning rate, of the optimizer or of the schedule",
                fmt::format("got learning_rate {} and peak {}", *rate, *peak));
  return rate.value_or(options.schedule.peak_rate());
}

std::string to_string(const OutputLoss& loss) {
  const std::string kind = model::to_string(loss.loss);
  std::string text = fmt::format("{}={}", loss.output, kind);
  char separator = kind.find(':') == std::string::npos ? ':' : ',';
  const auto add = [&](const std::string& setting) {
    text += separator + setting;
    separator = ',';
  };
  if (!loss.target.empty() && loss.target != loss.output) add("target=" + loss.target);
  if (loss.weight != 1) add(fmt::format("weight={}", loss.weight));
  return text;
}

ParameterGroup parse_group(std::string_view text) {
  Spec spec = Spec::of_pattern("group", text);
  ParameterGroup group{.pattern = spec.head()};
  spec.read("lr", group.learning_rate);
  spec.read("decay", group.weight_decay);
  spec.finish();
  if (group.pattern.empty() || (!group.learning_rate && !group.weight_decay))
    spec.refuse("", "expected PATTERN:lr=X,decay=Y, or one of the two");
  return group;
}

std::string to_string(const ParameterGroup& group) {
  std::string text = quote_spec(group.pattern) + ":";
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
  if (options.rate_scaling != RateScaling::none) *schedule.peak *= scale(options, global_batch);
  schedule.check();
  return schedule;
}

}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0 {

using TrainerFields = Fields<strategy::TrainerOptions>;

std::vector<std::string> TrainerFields::print_losses(const Options& options) {
  if (options.losses.empty()) return {model::to_string(options.loss)};
  return fields_detail::print(options.losses);
}

std::vector<std::string> TrainerFields::print_metrics(const Options& options) {
  std::vector<std::string> texts;
  if (!options.metrics.empty()) texts.push_back(model::list_metrics(options.metrics));
  for (const strategy::OutputLoss& one : options.losses)
    if (!one.metrics.empty())
      texts.push_back(fmt::format("{}:{}", one.output, model::list_metrics(one.metrics)));
  return texts;
}

std::vector<std::string> TrainerFields::print_optimizer(const Options& options) {
  return {to_string(options.optimizer)};
}

std::vector<std::string> TrainerFields::print_loss_scale(const Options& options) {
  return {strategy::to_string(options.loss_scaling)};
}

void TrainerFields::parse_loss_scale(Options& options, std::string_view /*name*/,
                                     std::span<const std::string> values) {
  options.loss_scaling = strategy::parse_loss_scaling(values.back());
}

std::vector<std::string> TrainerFields::print_groups(const Options& options) {
  return fields_detail::print(options.groups);
}

void TrainerFields::parse_groups(Options& options, std::string_view /*name*/,
                                 std::span<const std::string> values) {
  options.groups.clear();
  for (const std::string& text : values)
    if (!text.empty()) options.groups.push_back(strategy::parse_group(text));
}

namespace {
constexpr double kMebibyte = 1 << 20;
}  // namespace

std::vector<std::string> TrainerFields::print_bucket(const Options& options) {
  return {options.tune_buckets
              ? "auto"
              : fmt::format("{}", static_cast<double>(options.buckets.bytes) / kMebibyte)};
}

void TrainerFields::parse_bucket(Options& options, std::string_view name,
                                 std::span<const std::string> values) {
  const std::string& text = values.back();
  allreduce::BucketOptions buckets{.wire = options.buckets.wire};
  options.tune_buckets = text == "auto";
  if (!options.tune_buckets) {
    const double value = parse_number<double>(text).value_or(0);
    if (!(value > 0 && value <= kMebibyte))
      refuse_value(name, "to be a number above 0, or auto", text);
    buckets.bytes = static_cast<std::size_t>(value * kMebibyte);
  }
  buckets.first_bytes = std::min(buckets.first_bytes, buckets.bytes);
  options.buckets = buckets;
}

}  // namespace lockstep::inline v0
