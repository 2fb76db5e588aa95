#include "apps/lockstep/command_line/output_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/model/metrics/make_metrics.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr std::string_view kUntrained = "none";

[[noreturn]] void refuse_loss(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, "loss", expected, actual);
}

/// "kind, price"
std::string names_of(const model::Network& network) {
  std::vector<std::string_view> names;
  for (const model::NetworkOutput& output : network.outputs()) names.push_back(output.name);
  return list_names(names);
}

/// Adds the loss of "OUTPUT=LOSS:KEY=VALUE,...".
void add_named_loss(const std::string& text, LossArguments& arguments) {
  const auto [output, loss] = *cut_spec("loss", text, '=');
  if (output.empty()) refuse_loss("expected OUTPUT=LOSS", fmt::format("got \"{}\"", text));
  if (std::ranges::count(arguments.untrained, output) > 0 ||
      std::ranges::count(arguments.losses, output, &strategy::OutputLoss::output) > 0)
    refuse_loss("expected one loss for each output", fmt::format("got two for {}", output));
  Spec spec = Spec::parse("loss", loss);
  if (spec.head().find(',') != std::string::npos)
    spec.refuse("",
                "expected --loss OUTPUT=LOSS once for each output, without commas between them");
  if (spec.head() == kUntrained) {
    spec.finish();
    arguments.untrained.push_back(output);
    return;
  }
  strategy::OutputLoss one{.output = output, .loss = model::parse_loss(spec.head())};
  for (const auto& [name, place] : model::loss_parameters(one.loss)) spec.read(name, *place);
  model::check_options(one.loss);
  spec.read("target", one.target);
  spec.read("weight", one.weight);
  if (!(one.weight > 0)) spec.refuse("weight", "expected weight to be above 0");
  spec.finish();
  arguments.losses.push_back(std::move(one));
}

/// An output with a loss, and the names of the metrics that are asked of it.
struct MeasuredOutput {
  std::string name;
  model::Loss loss;
  std::int64_t width = 0;
  std::vector<std::string> asked = {};

  /// Without an accuracy that is measured anyway.
  model::Metrics metrics() const {
    auto all = model::make_metrics(fmt::format("{}", fmt::join(asked, ",")), loss, width);
    if (model::class_count(loss, width) > 0)
      std::erase_if(all, [](const auto& metric) { return metric->name() == "accuracy"; });
    return all;
  }
};

std::vector<MeasuredOutput> measured_outputs(const model::Network& network,
                                             const strategy::TrainerOptions& options) {
  const strategy::LossPlan plan = strategy::loss_plan(options, network);
  std::vector<MeasuredOutput> outputs;
  for (const model::LossTerm& term : plan.loss.terms()) {
    const model::NetworkOutput& output = network.outputs()[term.output];
    outputs.push_back({.name = output.name,
                       .loss = term.loss,
                       .width = model::row_width(term.loss, network.shape(output.node))});
  }
  return outputs;
}

/// Adds `metric` to each output that it fits.
void add_where_it_fits(const std::string& metric, std::vector<MeasuredOutput>& outputs) {
  std::vector<std::string> reasons;
  std::vector<std::string> names;
  for (MeasuredOutput& output : outputs) try {
      model::make_metrics(metric, output.loss, output.width);
      output.asked.push_back(metric);
    } catch (const Error& error) {
      const std::string reason = error.message().expected + ", " + error.message().actual;
      if (std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(reason);
      names.push_back(fmt::format("{} ({})", output.name, model::to_string(output.loss)));
      // A name that does not exist fits no output for the same reason.
      if (names.size() == outputs.size() && reasons.size() == 1) throw;
    }
  if (names.size() == outputs.size())
    throw Error(ErrorCategory::input, "metrics",
                fmt::format("expected a metric of one of the outputs {}", fmt::join(names, ", ")),
                fmt::format("got {}: {}", metric, fmt::join(reasons, "; ")));
}

/// Adds NAME to the output of OUTPUT:NAME; false if `text` is a NAME with options.
bool add_to_output(const std::string& text, std::vector<MeasuredOutput>& outputs) {
  const auto named = cut_spec("metrics", text, ':');
  if (!named || cut_spec("metrics", named->second, '=')) return false;
  const auto found = std::ranges::find(outputs, named->first, &MeasuredOutput::name);
  std::vector<std::string_view> names;
  for (const MeasuredOutput& output : outputs) names.push_back(output.name);
  if (found == outputs.end())
    throw Error(ErrorCategory::input, "metrics",
                fmt::format("expected OUTPUT:NAME with one of the outputs {}, or NAME:OPTION=VALUE",
                            list_names(names)),
                got_name(text, {}));
  found->asked.emplace_back(named->second);
  return true;
}

}  // namespace

const model::Loss& LossArguments::of_classes() const {
  for (const strategy::OutputLoss& one : losses)
    if (model::activation_of(one.loss) == "softmax") return one.loss;
  return losses.empty() ? loss : losses.front().loss;
}

LossArguments parse_losses(const std::vector<std::string>& texts) {
  LossArguments arguments{.texts = texts};
  const auto named = std::ranges::count_if(
      texts, [](const std::string& text) { return cut_spec("loss", text, '=').has_value(); });
  if (named > 0 && named < std::ssize(texts))
    refuse_loss("expected --loss LOSS, or --loss OUTPUT=LOSS for each output", "got both");
  for (const std::string& text : texts)
    if (named > 0)
      add_named_loss(text, arguments);
    else
      arguments.loss = model::parse_loss(text);
  return arguments;
}

void check_losses(const LossArguments& arguments, const model::Network& network) {
  const auto outputs = network.outputs();
  if (!arguments.is_named()) {
    if (outputs.size() > 1)
      refuse_loss(fmt::format("expected --loss OUTPUT=LOSS for each output of model {}: {} "
                              "(OUTPUT=none: not trained)",
                              network.name(), names_of(network)),
                  "got none that names an output");
    return;
  }
  std::vector<std::string_view> names(arguments.untrained.begin(), arguments.untrained.end());
  for (const strategy::OutputLoss& one : arguments.losses) names.push_back(one.output);
  std::vector<std::string_view> known;
  for (const model::NetworkOutput& output : outputs) known.push_back(output.name);
  for (const std::string_view name : names)
    if (std::ranges::find(known, name) == known.end())
      refuse_loss(
          fmt::format("expected an output of model {}: {}", network.name(), names_of(network)),
          got_name(name, known));
  for (const std::string_view name : known)
    if (std::ranges::find(names, name) == names.end())
      refuse_loss(fmt::format("expected a loss for each output of model {}: {}", network.name(),
                              names_of(network)),
                  fmt::format("got none for {}; {}=none does not train it", name, name));
  if (arguments.losses.empty())
    refuse_loss("expected a loss for at least one output", "got OUTPUT=none for all");
}

void add_metrics(std::string_view list, const model::Network& network,
                 strategy::TrainerOptions& options) {
  if (list.empty()) return;
  std::vector<MeasuredOutput> outputs = measured_outputs(network, options);
  for (const std::string& text : split_specs("metrics", list)) {
    if (add_to_output(text, outputs)) continue;
    if (outputs.size() == 1 || text.empty())
      outputs.front().asked.push_back(text);
    else
      add_where_it_fits(text, outputs);
  }
  if (outputs.size() == 1) {
    options.metrics = outputs[0].metrics();
    return;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) options.losses[i].metrics = outputs[i].metrics();
}

}  // namespace lockstep::inline v0::apps
