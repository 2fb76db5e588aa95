#include "apps/lockstep/output_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/metrics/make_metrics.h"

namespace lockstep::apps {
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

/// The parts of "a,b,c"; one, empty, of an empty text.
std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = list.find(',');
    parts.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

bool is_loss(std::string_view name) try {
  model::parse_loss(name);
  return true;
} catch (const Error&) {
  return name == kUntrained;
}

/// Whether `text` is OUTPUT=LOSS: a loss alone has no "=" before its colon.
bool names_output(std::string_view text) {
  const std::size_t at = text.find_first_of("=:");
  return at != std::string_view::npos && text[at] == '=';
}

/// Reads the values of --loss, part by part.
class LossParser {
 public:
  explicit LossParser(LossArguments& arguments) : arguments_(arguments) {}

  /// "OUTPUT=LOSS", or with a first setting "OUTPUT=LOSS:KEY=VALUE".
  void begin(std::string_view part) {
    const std::size_t equals = part.find('=');
    const std::string output(part.substr(0, equals));
    const std::string_view text = part.substr(equals + 1);
    const std::size_t colon = text.find(':');
    if (output.empty()) refuse_loss("expected OUTPUT=LOSS", fmt::format("got \"{}\"", part));
    if (std::ranges::find(outputs_, output) != outputs_.end())
      refuse_loss("expected one loss for each output", fmt::format("got two for {}", output));
    outputs_.push_back(output);
    is_untrained_ = text == kUntrained;
    if (is_untrained_) {
      arguments_.untrained.push_back(output);
      return;
    }
    arguments_.losses.push_back(
        {.output = output, .loss = model::parse_loss(text.substr(0, colon))});
    if (colon != std::string_view::npos) set(text.substr(colon + 1));
  }

  /// "KEY=VALUE" of the last output.
  void set(std::string_view setting) {
    if (is_untrained_)
      refuse_loss(fmt::format("expected {}=none without settings", outputs_.back()),
                  fmt::format("got \"{}\"", setting));
    strategy::OutputLoss& last = arguments_.losses.back();
    const std::size_t equals = std::min(setting.find('='), setting.size());
    const std::string_view key = setting.substr(0, equals);
    const std::string_view value = setting.substr(std::min(equals + 1, setting.size()));
    if (key == "target" && !value.empty()) {
      last.target = value;
      return;
    }
    const auto number = parse_number<float>(value);
    if (key == "weight" && number && *number > 0 && std::isfinite(*number)) {
      last.weight = *number;
      return;
    }
    for (const auto& [name, place] : model::loss_parameters(last.loss))
      if (key == name && number) {
        *place = *number;
        model::check_options(last.loss);
        return;
      }
    refuse_loss(fmt::format("expected {} as settings of {}={}", settings_of(last), last.output,
                            model::to_string(last.loss)),
                fmt::format("got \"{}\"", setting));
  }

  /// Whether `part`, which follows a comma, is a setting of the last output.
  bool is_setting(std::string_view part) const {
    const std::string_view key = part.substr(0, part.find('='));
    if (key == "weight" || key == "target" || !names_output(part)) return true;
    const std::string_view value = part.substr(key.size() + 1);
    return !is_loss(value.substr(0, value.find(':')));
  }

 private:
  static std::string settings_of(strategy::OutputLoss loss) {
    std::string text = "weight=W above 0, target=NAME";
    for (const auto& parameter : model::loss_parameters(loss.loss))
      text += fmt::format(", {}=X", parameter.first);
    return text;
  }

  LossArguments& arguments_;
  std::vector<std::string> outputs_ = {};
  bool is_untrained_ = false;
};

/// An output with a loss, and the names of the metrics that are asked of it.
struct MeasuredOutput {
  std::string name;
  model::Loss loss;
  std::int64_t width = 0;
  std::vector<std::string_view> asked = {};

  model::Metrics metrics() const {
    return model::make_metrics(fmt::format("{}", fmt::join(asked, ",")), loss, width);
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
void add_where_it_fits(std::string_view metric, std::vector<MeasuredOutput>& outputs) {
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

/// Whether `part` is OUTPUT:NAME: the options of a metric have a "=".
bool names_output_of_metric(std::string_view part) {
  const std::size_t colon = part.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view rest = part.substr(colon + 1);
  return rest.substr(0, rest.find(':')).find('=') == std::string_view::npos;
}

MeasuredOutput& output_of_metric(std::string_view part, std::vector<MeasuredOutput>& outputs) {
  const std::string_view name = part.substr(0, part.find(':'));
  const auto found = std::ranges::find(outputs, name, &MeasuredOutput::name);
  if (found != outputs.end()) return *found;
  std::vector<std::string_view> names;
  for (const MeasuredOutput& output : outputs) names.push_back(output.name);
  throw Error(ErrorCategory::input, "metrics",
              fmt::format("expected OUTPUT:NAME with one of the outputs {}, or NAME:OPTION=VALUE",
                          list_names(names)),
              got_name(part, {}));
}

}  // namespace

const model::Loss& LossArguments::of_classes() const {
  for (const strategy::OutputLoss& one : losses)
    if (model::activation_of(one.loss) == "softmax") return one.loss;
  return losses.empty() ? loss : losses.front().loss;
}

LossArguments parse_losses(const std::vector<std::string>& texts) {
  LossArguments arguments{.texts = texts};
  LossParser parser(arguments);
  const auto named = std::ranges::count_if(texts, names_output);
  if (named > 0 && named < std::ssize(texts))
    refuse_loss("expected --loss LOSS, or --loss OUTPUT=LOSS for each output", "got both");
  for (const std::string& text : texts) {
    if (named == 0) {
      arguments.loss = model::parse_loss(text);
      continue;
    }
    bool is_first = true;
    for (const std::string_view part : split_list(text)) {
      if (is_first || !parser.is_setting(part))
        parser.begin(part);
      else
        parser.set(part);
      is_first = false;
    }
  }
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
  std::vector<std::string_view> given(arguments.untrained.begin(), arguments.untrained.end());
  for (const strategy::OutputLoss& one : arguments.losses) given.push_back(one.output);
  std::vector<std::string_view> known;
  for (const model::NetworkOutput& output : outputs) known.push_back(output.name);
  for (const std::string_view name : given)
    if (std::ranges::find(known, name) == known.end())
      refuse_loss(
          fmt::format("expected an output of model {}: {}", network.name(), names_of(network)),
          got_name(name, known));
  for (const std::string_view name : known)
    if (std::ranges::find(given, name) == given.end())
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
  for (const std::string_view part : split_list(list)) {
    if (names_output_of_metric(part))
      output_of_metric(part, outputs).asked.push_back(part.substr(part.find(':') + 1));
    else if (outputs.size() == 1 || part.empty())
      outputs.front().asked.push_back(part);
    else
      add_where_it_fits(part, outputs);
  }
  if (outputs.size() == 1) {
    options.metrics = outputs[0].metrics();
    return;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) options.losses[i].metrics = outputs[i].metrics();
}

}  // namespace lockstep::apps
