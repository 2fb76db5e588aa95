#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "apps/lockstep/checkpoint/checkpoint_export.h"
#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/model_source.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/train/fit/fit_state.h"
#include "lockstep/train/input/data_names.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using checkpoint::CheckpointInfo;
using nlohmann::ordered_json;

struct CheckpointArguments {
  fs::path path;
  ExportArguments exported;
  bool json = false;
};

[[noreturn]] void refuse(const fs::path& path, std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::checkpoint, path.string(), expected, actual);
}

/// All checkpoints of a directory, newest first. Throws if there is none.
std::vector<CheckpointInfo> checkpoints_in(const fs::path& directory) {
  std::vector<CheckpointInfo> found = checkpoint::list_checkpoints(directory);
  std::error_code unreadable;
  if (found.empty())
    refuse(directory, "expected a checkpoint, or a directory of checkpoints",
           fs::exists(directory, unreadable) ? "there is none in it"
           : unreadable                      ? unreadable.message()
                                             : "it does not exist");
  return found;
}

// ---- inspect

std::string state_of(const CheckpointInfo& info, bool is_best) {
  if (!info.complete()) return info.damage;
  if (is_best) return fmt::format("complete, best: {} {:.6g}", info.best->metric, info.best->value);
  return info.healthy ? "complete" : "complete, not healthy";
}

ordered_json describe(const CheckpointInfo& info, bool is_best) {
  ordered_json line = {{"path", info.path.string()},  {"step", info.step},
                       {"epoch", info.epoch},         {"bytes", info.bytes},
                       {"complete", info.complete()}, {"healthy", info.healthy}};
  if (!info.complete()) line["damage"] = info.damage;
  if (is_best) line["best"] = {{"metric", info.best->metric}, {"value", info.best->value}};
  return line;
}

void list_directory(const fs::path& directory, bool json, std::ostream& out) {
  const std::vector<CheckpointInfo> found = checkpoints_in(directory);
  if (!json)
    out << fmt::format("{:<16} {:>10} {:>7} {:>14}  {}\n", "checkpoint", "step", "epoch", "bytes",
                       "state");
  const CheckpointInfo* const best = checkpoint::find_best(found);
  for (const CheckpointInfo& info : found) {
    if (json) {
      out << dump_json(describe(info, &info == best)) << '\n';
    } else {
      out << fmt::format("{:<16} {:>10} {:>7} {:>14}  {}\n",
                         printable(info.path.filename().native()), info.step, info.epoch,
                         info.bytes, printable(state_of(info, &info == best)));
    }
  }
}

void list_tensors(const fs::path& path, bool json, std::ostream& out) {
  for (const char* name : {checkpoint::kModelFile, checkpoint::kOptimizerFile}) {
    const checkpoint::SafetensorsFile file(path / name);
    std::size_t names_width = 0;
    std::size_t shapes_width = 0;
    for (const auto& tensor : file.tensors()) {
      names_width = std::max(names_width, printable(tensor.name).size());
      shapes_width = std::max(shapes_width, model::to_string(tensor.shape).size());
    }
    if (!json) out << fmt::format("{}: {}\n", name, counted(file.tensors().size(), "tensor"));
    for (const auto& tensor : file.tensors()) {
      if (json) {
        const ordered_json line = {{"file", name},
                                   {"tensor", tensor.name},
                                   {"type", tensor.type},
                                   {"shape", tensor.shape},
                                   {"bytes", tensor.bytes}};
        out << dump_json(line) << '\n';
      } else {
        out << fmt::format("  {:<{}}  {:<4}  {:<{}} {:>12} bytes\n", printable(tensor.name),
                           names_width, tensor.type, model::to_string(tensor.shape), shapes_width,
                           tensor.bytes);
      }
    }
  }
}

/// "kind [3], price [1]"
std::string outputs_text(const model::Network& network) {
  std::vector<std::string> texts;
  for (const model::NetworkOutput& output : network.outputs())
    texts.push_back(printable(output.name) + " " + model::to_string(network.shape(output.node)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// "  network mlp:32,16, 2756 parameters, 2 classes: apple, pear"; empty if the checkpoint does not
/// describe its network.
std::string network_text(const checkpoint::TrainingState& state) {
  constexpr std::size_t kMaxNames = 20;
  try {
    const ModelSource source = ModelSource::of_configuration(*state.configuration, "network");
    if (source.script)  // a program, which is not run to look at a checkpoint
      return fmt::format("  network {}, a TorchScript file\n",
                         printable(fs::path(source.name).filename().string()));
    const model::Network network = source.make();
    const bool has_classes = model::activation_of(source.loss) == "softmax";
    const auto classes = train::DataNames::of(state.configuration).classes;
    if (source.losses.size() > 1)
      return fmt::format(
          "  network {}, {}, outputs {}\n", printable(network.name()),
          counted(static_cast<std::int64_t>(network.parameters().element_count()), "parameter"),
          outputs_text(network));
    const bool lists_classes = has_classes && !classes.empty() && classes.size() <= kMaxNames;
    return fmt::format(
        "  network {}, {}, {}{}{}\n", printable(network.name()),
        counted(static_cast<std::int64_t>(network.parameters().element_count()), "parameter"),
        has_classes ? fmt::format("{} classes", source.outputs) : counted(source.outputs, "target"),
        lists_classes ? ": " : "",
        printable(
            fmt::format("{}", fmt::join(lists_classes ? classes : decltype(classes){}, ", "))));
  } catch (const Error&) {
    return {};
  }
}

/// A line for each loss, "  loss of price: mse, weight 0.5, target cost"; of a single one of the
/// first output, "  loss function mse". Empty if the checkpoint does not describe its network.
std::string losses_text(const checkpoint::TrainingState& state) {
  try {
    const ModelSource source = ModelSource::of_configuration(*state.configuration, "network");
    std::string text;
    for (const strategy::OutputLoss& one : source.losses)
      text += fmt::format("  loss of {}: {}, weight {}, target {}\n", printable(one.output),
                          model::to_string(one.loss), one.weight, printable(one.target));
    if (!text.empty()) return text;
    return fmt::format(
        "  loss function {}{}\n", model::to_string(source.loss),
        source.loss_count > 1 ? fmt::format(", the first of {}", source.loss_count) : "");
  } catch (const Error&) {
    return {};
  }
}

/// "  step 24 of 33, 2 epochs completed"; empty if the checkpoint does not have the length of its
/// training.
std::string progress_text(const checkpoint::TrainingState& state) {
  const auto steps = state.configuration->find(train::kStepsKey);
  if (steps == state.configuration->end() || !steps->is_number_integer()) return {};
  return fmt::format("  step {} of {}, {} completed\n", state.step, steps->get<std::int64_t>(),
                     counted(state.epoch, "epoch"));
}

/// "  optimizer adam(beta1=0.9, …)"; empty if the checkpoint does not tell it.
std::string optimizer_text(const checkpoint::TrainingState& state) {
  const auto settings = state.configuration->find(train::kSettingsKey);
  if (settings == state.configuration->end() || !settings->is_object()) return {};
  const auto optimizer = settings->find("optimizer");
  if (optimizer == settings->end() || !optimizer->is_string()) return {};
  return fmt::format("  optimizer {}\n", printable(optimizer->get<std::string>()));
}

/// "  loss 0.25 over 640 samples of the epoch" within an epoch of a training; all metrics of
/// another program.
std::string metrics_text(const checkpoint::TrainingState& state) {
  const auto& metrics = state.metrics;
  const auto samples = metrics.find(train::kEpochSamplesKey);
  const auto loss = metrics.find(train::kEpochLossKey);
  const auto excess = metrics.find(train::kEpochWeightKey);
  std::string text;
  if (samples == metrics.end() || loss == metrics.end())
    for (const auto& [name, value] : metrics)
      text += fmt::format("  {} = {}\n", printable(name), value);
  else if (samples->second > 0)
    text = fmt::format(
        "  loss {:.6g} over {} samples of the epoch\n",
        loss->second / (samples->second + (excess == metrics.end() ? 0 : excess->second)),
        samples->second);
  return text;
}

void inspect_one(const fs::path& path, bool json, std::ostream& out) {
  const std::string state_path = (path / checkpoint::kStateFile).string();
  const std::string state = checkpoint::read_small_file(state_path);
  const checkpoint::TrainingState parsed = checkpoint::parse_training_state(state, state_path);
  if (json) {
    // parse_training_state() has already applied the limits of parse_json(). ordered_json keeps the
    // order of the keys.
    out << dump_json(ordered_json::parse(state)) << '\n';
  } else {
    out << fmt::format("{}: step {}, epoch {}, seed {}, global batch {}, {}\n",
                       printable(path.native()), parsed.step, parsed.epoch, parsed.seed,
                       parsed.global_batch, printable(parsed.precision));
    out << fmt::format("{}{}", network_text(parsed), progress_text(parsed));
    out << fmt::format("{}{}{}", optimizer_text(parsed), losses_text(parsed), metrics_text(parsed));
  }
  list_tensors(path, json, out);
}

void run_inspect(const CheckpointArguments& arguments, std::ostream& out) {
  if (checkpoint::is_checkpoint(arguments.path)) {
    inspect_one(arguments.path, arguments.json, out);
  } else {
    list_directory(arguments.path, arguments.json, out);
  }
}

// ---- verify

/// Why a checkpoint cannot be used; empty if it is intact.
std::string damage_of(const fs::path& path) {
  try {
    const checkpoint::Manifest manifest = checkpoint::read_manifest(path);
    checkpoint::check_contents(path, manifest);
    for (const char* name : {checkpoint::kModelFile, checkpoint::kOptimizerFile})
      checkpoint::SafetensorsFile{path / name};
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void run_verify(const CheckpointArguments& arguments, std::ostream& out) {
  const std::vector<CheckpointInfo> found = checkpoints_in(arguments.path);
  std::size_t damaged = 0;
  for (const CheckpointInfo& info : found) {
    const std::string path = info.path.string();
    const std::string damage = info.complete() ? damage_of(info.path) : info.damage;
    if (!damage.empty()) ++damaged;
    if (arguments.json) {
      ordered_json line = {{"path", path}, {"sound", damage.empty()}};
      if (!damage.empty()) line["damage"] = damage;
      out << dump_json(line) << '\n';
    } else {
      out << fmt::format("{}: {}\n", printable(path), damage.empty() ? "intact" : damage);
    }
  }
  if (damaged > 0)
    refuse(arguments.path, "expected intact checkpoints",
           fmt::format("{} of {} are damaged", damaged, found.size()));
}

// ---- export

/// The newest complete and healthy checkpoint, or the newest complete one if none is healthy.
fs::path choose(const fs::path& path) {
  const std::vector<CheckpointInfo> found = checkpoints_in(path);
  for (const bool healthy : {true, false})
    for (const CheckpointInfo& info : found)
      if (info.complete() && info.healthy == healthy) return info.path;
  refuse(path, "expected a complete checkpoint", found.front().damage);
}

void run_export(const CheckpointArguments& arguments, std::ostream& out) {
  check_export(arguments.exported);
  const fs::path chosen = choose(arguments.path);
  if (const std::string best = checkpoint::describe_best(arguments.path, chosen); !best.empty())
    make_logger()->info(best);
  checkpoint::check_contents(chosen, checkpoint::read_manifest(chosen));
  export_checkpoint(chosen, arguments.exported, out);
}

using Run = void (*)(const CheckpointArguments&, std::ostream&);

CLI::App* add_action(CLI::App& command, const char* name, const char* help, Run run,
                     const std::shared_ptr<CheckpointArguments>& arguments, std::ostream& out) {
  CLI::App* action = command.add_subcommand(name, help);
  action
      ->add_option(
          "PATH", arguments->path,
          "A directory of checkpoints (--checkpoint-dir), a single checkpoint, or DIR:best, the "
          "best one of a training with --keep-best")
      ->type_name("")
      ->required();
  action->callback([run, arguments, &out] {
    arguments->path = checkpoint::resolve_best(arguments->path);
    run(*arguments, out);
  });
  return action;
}

}  // namespace

void add_checkpoint_command(CLI::App& program, std::ostream& out) {
  CLI::App* command = program.add_subcommand("checkpoint", "Inspect, verify or export checkpoints");
  command->require_subcommand(1);
  const auto arguments = std::make_shared<CheckpointArguments>();
  for (CLI::App* action :
       {add_action(*command, "inspect",
                   "List the checkpoints of a directory, or the state and tensors of one",
                   run_inspect, arguments, out),
        add_action(*command, "verify", "Read all files and compare them with their checksums",
                   run_verify, arguments, out)})
    add_json_option(*action, arguments->json, "Print one JSON object per line");
  CLI::App* const exports = add_action(
      *command, "export",
      "Write the model of the newest complete checkpoint, or of the given one, to a file "
      "for other programs",
      run_export, arguments, out);
  exports->get_help_ptr()->group(kCommonOptions);
  add_fields(*exports, fields_without(fields_of(arguments->exported), {"model"}));
  exports->get_option("--output")->required();
}

}  // namespace lockstep::inline v0::apps
