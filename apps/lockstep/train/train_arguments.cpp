#include "apps/lockstep/train/train_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <map>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::apps {
namespace {

/// The optimizers, with their defaults, that have a hyperparameter of this name.
std::vector<model::OptimizerOptions> optimizers_with(std::string_view hyperparameter) {
  std::vector<model::OptimizerOptions> all = model::all_optimizers();
  std::erase_if(all, [&](model::OptimizerOptions& optimizer) {
    return model::find_hyperparameter(optimizer, hyperparameter) == nullptr;
  });
  return all;
}

/// "adam, adamw or lamb", with `last` " or ".
std::string list_optimizers(std::span<const model::OptimizerOptions> optimizers,
                            std::string_view last) {
  std::vector<std::string> names;
  for (const model::OptimizerOptions& optimizer : optimizers)
    names.push_back(model::name_of(optimizer));
  return list_names(std::vector<std::string_view>(names.begin(), names.end()), last);
}

/// "sgd (default 0) and lars (default 0.9)": the optimizers that have a hyperparameter.
std::string list_defaults(std::string_view hyperparameter) {
  std::vector<std::string> texts;
  auto rest = optimizers_with(hyperparameter);
  const auto default_of = [&](model::OptimizerOptions& optimizer) {
    return *model::find_hyperparameter(optimizer, hyperparameter);
  };
  while (!rest.empty()) {
    const auto others = std::stable_partition(
        rest.begin(), rest.end(),
        [&, value = default_of(rest[0])](auto& other) { return default_of(other) == value; });
    texts.push_back(fmt::format("{} (default {})", list_optimizers({rest.begin(), others}, " and "),
                                default_of(rest[0])));
    rest.erase(rest.begin(), others);
  }
  return list_names(std::vector<std::string_view>(texts.begin(), texts.end()), " and ");
}

model::OptimizerOptions parse_optimizer(std::string_view name) {
  std::vector<std::string> names;
  for (const model::OptimizerOptions& optimizer : model::all_optimizers()) {
    if (model::name_of(optimizer) == name) return optimizer;
    names.push_back(model::name_of(optimizer));
  }
  refuse_name("--optimizer", name, std::vector<std::string_view>(names.begin(), names.end()));
}

[[noreturn]] void refuse_arguments(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::input, "command line", expected, actual);
}

void set_label_smoothing(LossArguments& arguments, double smoothing) {
  if (smoothing == 0) return;
  if (arguments.is_named())
    refuse_arguments("expected the setting label_smoothing=S of --loss OUTPUT=LOSS",
                     "got --label-smoothing");
  model::Loss& loss = arguments.loss;
  for (const auto& [name, value] : model::loss_parameters(loss))
    if (name == "label_smoothing") {
      *value = static_cast<float>(smoothing);
      return;
    }
  refuse_arguments("expected a cross-entropy as --loss with --label-smoothing",
                   fmt::format("got {}", model::name_of(loss)));
}

/// The weights in a list such as "1,2.5"; none for "auto" and "".
std::vector<float> class_weights_of(std::string_view text) {
  std::vector<float> weights;
  if (text.empty() || text == "auto") return weights;
  for (const std::string& part : split_specs("--class-weights", text)) {
    const auto weight = parse_number<float>(part);
    if (!weight)
      refuse_arguments(
          "expected --class-weights to be auto or a number for each class, such as 1,2.5",
          fmt::format("got \"{}\"", text));
    weights.push_back(*weight);
  }
  return weights;
}

/// Throws Error (input) for a constant that the optimizer does not have.
model::OptimizerOptions optimizer_options(const OptimizerArguments& a) {
  model::OptimizerOptions options = a.kind;
  for (const BoundField& field : fields_of(a)) {
    if (field.text->key == "optimizer" || field.text->key == "nesterov" || field.values().empty())
      continue;
    const float value = parse_number<float>(field.print()).value_or(0);
    const auto is_default_of = [&](model::OptimizerOptions& other) {
      return *model::find_hyperparameter(other, field.text->key) == value;
    };
    // A constant that its optimizers have anyway, and no momentum, go with every optimizer.
    auto others = optimizers_with(field.text->key);
    if (float* const found = model::find_hyperparameter(options, field.text->key))
      *found = value;
    else if (!std::ranges::all_of(others, is_default_of) &&
             (field.text->key != "momentum" || value != 0))
      refuse_arguments(
          fmt::format("expected --optimizer {} with {}",
                      list_optimizers(optimizers_with(field.text->key), " or "), field.option()),
          fmt::format("got {}", model::name_of(options)));
  }
  if (auto* const sgd = std::get_if<model::Sgd>(&options)) sgd->nesterov = a.nesterov;
  return options;
}

/// Sets the directory of checkpoints and the metric of the best one. Throws Error (input) for
/// options of checkpoints if there is no directory for them.
void complete_checkpoint_options(TrainArguments& a) {
  train::CheckpointPlan& checkpoint = a.fit.checkpoint;
  const bool saves = a.checkpoint_dir != "none";
  checkpoint.directory = saves ? a.checkpoint_dir : "";
  a.chooses_directory = a.checkpoint_dir.empty();
  if (!a.keep_best.empty() && a.keep_best != "none")
    checkpoint.keep_best = train::parse_keep_best(a.keep_best);
  if (!checkpoint.directory.empty()) return;
  const train::CheckpointPlan defaults;
  const char* const option = checkpoint.resume == checkpoint::Resume::require ? "--resume require"
                             : checkpoint.overwrite                           ? "--overwrite"
                             : saves                                          ? nullptr
                             : checkpoint.save_every != defaults.save_every   ? "--save-every"
                             : checkpoint.keep != defaults.keep               ? "--keep"
                             : checkpoint.keep_best                           ? "--keep-best"
                                                                              : nullptr;
  if (option != nullptr)
    refuse_arguments(fmt::format("expected --checkpoint-dir DIR with {}", option),
                     saves ? "it was not given" : "got none");
}

}  // namespace

void add_train_options(CLI::App& command, TrainArguments& a, const char* quiet) {
  command.get_help_ptr()->group(kCommonOptions);
  add_fields(command, fields_of(a));
  command.get_option("--quiet")->description(quiet);
  add_json_option(command, a.output.json,
                  "Print one JSON object per line on standard output, for programs")
      ->group("Output");
}

void complete(TrainArguments& a) {
  require_given("--model NAME or --model FILE.json", a.model);
  require_given("--data", a.data.data);
  if (is_onnx(a.model) && a.pretrained.path.empty()) a.pretrained.path = a.model;
  check_needs(fields_of(std::as_const(a)));
  a.data.autoencodes = a.autoencoder;
  if (a.autoencoder && !a.loss.is_given)
    a.loss = parse_losses({model::name_of(model::Loss(model::MeanSquaredError()))});
  a.split.seed = a.trainer.seed;
  a.split.check();
  if (a.split.validation > 0 && !a.validation_data.empty())
    refuse_arguments("expected --validation-data or --validation-split", "got both");
  complete_checkpoint_options(a);
  set_label_smoothing(a.loss, a.label_smoothing);
  a.trainer.loss = a.loss.loss;
  a.trainer.losses = a.loss.losses;
  a.trainer.class_weights = class_weights_of(a.class_weights);
  if (a.fit.profile == "-")
    refuse_arguments("expected --profile FILE, such as /dev/stderr for the screen", "got \"-\"");
  if (a.events == "-") refuse_arguments("expected --events FILE, such as run.jsonl", "got \"-\"");
  if (a.exporter.file == "-")
    refuse_arguments("expected --metrics-file FILE, such as lockstep.prom", "got \"-\"");
  a.trainer.optimizer = optimizer_options(a.optimizer);
  a.fit.read = a.data.read;
  a.fit.signals = {SIGTERM, SIGINT, SIGHUP};
  if (!a.pretrained.path.empty()) a.fit.pretrained = a.pretrained;
}

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

using OptimizerFields = Fields<apps::OptimizerArguments>;
using TrainFields = Fields<apps::TrainArguments>;

std::string OptimizerFields::list_kinds() {
  return apps::list_optimizers(model::all_optimizers(), " or ");
}

std::string OptimizerFields::list_defaults(std::string_view constant) {
  return apps::list_defaults(constant);
}

void OptimizerFields::parse_kind(Options& options, std::string_view /*name*/,
                                 std::span<const std::string> values) {
  options.kind = apps::parse_optimizer(values.back());
}

std::string TrainFields::list_networks() { return list_names(zoo::names()); }

std::string TrainFields::list_losses() { return list_names(model::loss_names()); }

void TrainFields::parse_losses(Options& options, std::string_view /*name*/, Values values) {
  options.loss = apps::parse_losses({values.begin(), values.end()});
  options.loss.is_given = true;
}

void TrainFields::parse_metrics(Options& options, std::string_view /*name*/, Values values) {
  options.metrics = fmt::format("{}", fmt::join(values, ","));
}

void TrainFields::parse_bad_records(Options& options, std::string_view /*name*/, Values values) {
  options.data.bad_records = apps::parse_bad_records(values.back());
}

std::vector<std::string> TrainFields::print_bad_records(const Options& options) {
  return {options.data.bad_records ? fmt::format("skip:{}", *options.data.bad_records) : "fail"};
}

namespace {

/// Sets `text` and what it means; an empty text means nothing.
template <typename T, typename Parse>
void assign_text(std::string& text, std::optional<T>& value, const std::string& given,
                 Parse parse) {
  value.reset();
  if (!given.empty()) value = parse(given);
  text = given;
}

}  // namespace

void TrainFields::parse_early_stop(Options& options, std::string_view /*name*/, Values values) {
  assign_text(options.early_stop, options.early_stopping, values.back(),
              train::parse_early_stopping);
}

void TrainFields::parse_plateau(Options& options, std::string_view /*name*/, Values values) {
  assign_text(options.reduce_on_plateau, options.plateau, values.back(), train::parse_plateau);
}

void TrainFields::parse_metrics_port(Options& options, std::string_view /*name*/, Values values) {
  assign_text(options.metrics_port, options.exporter.address, values.back(),
              train::parse_metrics_address);
}

}  // namespace lockstep::inline v0
