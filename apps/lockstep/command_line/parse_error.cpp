#include "apps/lockstep/command_line/parse_error.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/lockstep/command_line/help_formatter.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::apps {
namespace {

/// The innermost parsed command: `train`, or `convert` of `data convert`.
const CLI::App& innermost(const CLI::App& program) {
  const auto commands = program.get_subcommands();
  return commands.empty() ? program : innermost(*commands.back());
}

std::string path_of(const CLI::App& command) {
  return command.get_parent() == nullptr
             ? command.get_name()
             : path_of(*command.get_parent()) + " " + command.get_name();
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<std::string> known_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

/// Prefix of the entries of kOtherNames for the number of ranks.
constexpr std::string_view kMpirun = "mpirun";

/// Names of options and commands in other programs, or in other commands of this one, with the
/// equivalent option and its value, if any. If a name has several rows, the first whose option the
/// command has is used. "files" and "PATH" are positional arguments.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"--accumulation-steps", "--accumulate"},
    {"--amp", "--precision bfloat16"},
    {"--arch", "--model"},
    {"--backend", "--allreduce"},
    {"--batch", "--global-batch"},
    {"--bs", "--global-batch"},
    {"--bf16", "--precision bfloat16"},
    {"--checkpoint", "--checkpoint-dir"},
    {"--checkpoint", "PATH"},
    {"--ckpt", "--checkpoint-dir"},
    {"--ckpt", "--checkpoint"},
    {"--ckpt-dir", "--checkpoint-dir"},
    {"--checkpoint-dir", "--checkpoint"},
    {"--checkpoint-dir", "PATH"},
    {"--data", "files"},
    {"--data", "--input"},
    {"--dataset", "--data"},
    {"--decay", "--weight-decay"},
    {"--eval", "--validation-data"},
    {"--eval-data", "--validation-data"},
    {"--fp16", "--precision float16"},
    {"--gpu", "--devices"},
    {"--gpus", "--devices"},
    {"--grad-clip", "--clip-norm"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--half", "--precision float16"},
    {"--histogram-freq", "--histograms"},
    {"--log-dir", "--summary-dir"},
    {"--logdir", "--summary-dir"},
    {"--max-epochs", "--epochs"},
    {"--max-grad-norm", "--clip-norm"},
    {"--max-new-tokens", "--tokens"},
    {"--max-steps", "--steps"},
    {"--max-tokens", "--tokens"},
    {"--mixed-precision", "--precision bfloat16"},
    {"--model", "--checkpoint"},
    {"--model-dir", "--checkpoint-dir"},
    {"--np", "mpirun -np"},
    {"--nproc", "mpirun -np"},
    {"--nprocs", "mpirun -np"},
    {"--nproc-per-node", "mpirun -np"},
    {"--nproc_per_node", "mpirun -np"},
    {"--num-classes", "--classes"},
    {"--num-epochs", "--epochs"},
    {"--num-gpus", "--devices"},
    {"--num-steps", "--steps"},
    {"--num-workers", "--data-threads"},
    {"--output", "--checkpoint-dir"},
    {"--output-dir", "--checkpoint-dir"},
    {"--output-dir", "--output"},
    {"--pretrained", "--init-from"},
    {"--random-seed", "--seed"},
    {"--resume-from", "--checkpoint-dir"},
    {"--save-dir", "--checkpoint-dir"},
    {"--scheduler", "--lr-schedule"},
    {"--silent", "--quiet"},
    {"--step-size", "--learning-rate"},
    {"--tensorboard", "--summary-dir"},
    {"--test-data", "--validation-data"},
    {"--test-data", "--data"},
    {"--thread", "--data-threads"},
    {"--threads", "--data-threads"},
    {"--train-data", "--data"},
    {"--val-data", "--validation-data"},
    {"--validation-data", "--data"},
    {"--warmup", "--warmup-steps"},
    {"--wd", "--weight-decay"},
    {"--weights", "--init-from"},
    {"--weights", "--checkpoint"},
    {"--workers", "--data-threads"},
    {"--world-size", "mpirun -np"},
    {"-n", "mpirun -np"},
    {"-np", "mpirun -np"},
    {"benchmark", "data benchmark"},
    {"convert", "data convert"},
    {"export", "checkpoint export"},
    {"fit", "train"},
    {"index", "data index"},
    {"inspect", "data inspect"},
    {"list", "inspect"},
    {"show", "inspect"},
    {"test", "evaluate"},
    {"verify", "data verify"}};

}  // namespace

std::string got_word(const std::string& word, const CLI::App& command) {
  const std::vector<std::string> names = known_names(command);
  for (const auto& [other, name] : kOtherNames) {
    if (word != other) continue;
    if (name.starts_with(kMpirun) && command.get_option_no_throw("--np") != nullptr)
      return fmt::format("got \"{}\" (did you mean --np?)", word);
    if (name.starts_with(kMpirun))
      return fmt::format("got \"{}\" (ranks are started by {} N {})", word, name, path_of(command));
    const std::string known(name.substr(0, name.find(' ')));
    const CLI::Option* const option = command.get_option_no_throw(known);
    if (option != nullptr && option->get_positional())
      return fmt::format("got \"{}\" ({} takes {} without an option)", word, path_of(command),
                         name);
    if (std::ranges::find(names, known) != names.end())
      return fmt::format("got \"{}\" (did you mean {}?)", word, name);
  }
  return got_name(word, std::vector<std::string_view>(names.begin(), names.end()));
}

namespace {

/// Whether `word`, which is no option, is one of the files that a pattern after --data matched.
bool is_from_unquoted_pattern(const std::string& word, const CLI::App& command) {
  const CLI::Option* data = command.get_option_no_throw("--data");
  std::error_code unreadable;
  return data != nullptr && data->count() > 0 && std::filesystem::exists(word, unreadable) &&
         !std::filesystem::is_directory(word, unreadable);
}

/// `got "run" (did you mean --checkpoint run?)`: a value without an option, for the first missing
/// option that it may belong to.
std::string got_value(const std::string& word, const CLI::App& command) {
  if (is_from_unquoted_pattern(word, command))
    return fmt::format(
        "got \"{}\"; quote a pattern, such as --data 'train-*.tfrecord', so that the shell passes "
        "it on",
        word);
  std::vector<const char*> names = {"--checkpoint", "--input", "--data", "--model", "--output"};
  if (std::ranges::count(zoo::names(), word.substr(0, word.find(':'))) > 0)
    names.insert(names.begin(), "--model");
  for (const char* name : names) {
    const CLI::Option* const option = command.get_option_no_throw(name);
    if (option != nullptr && option->count() == 0)
      return fmt::format("got \"{0}\" (did you mean {1} {0}?)", word, name);
  }
  return got_word(word, command);
}

bool has_commands(const CLI::App& command) {
  return !command.get_subcommands([](const CLI::App*) { return true; }).empty();
}

/// The last occurrence of `option` in `arguments`. Positional arguments have no value here.
TypedOption as_typed(const CLI::Option& option, const std::vector<std::string>& arguments) {
  TypedOption typed{option.get_name(), ""};
  for (std::size_t i = 0; i < arguments.size(); ++i)
    for (const std::string& name : option.get_lnames()) {
      const std::string whole = "--" + name;
      if (arguments[i] == whole) typed = {whole, i + 1 < arguments.size() ? arguments[i + 1] : ""};
      if (arguments[i].starts_with(whole + "="))
        typed = {whole, arguments[i].substr(whole.size() + 1)};
    }
  return typed;
}

/// The option that CLI11's `text` is about: "--seed: 1 required INT missing", "Could not convert:
/// --seed = x", "files is required", "--quick excludes --seconds". Null if there is none.
const CLI::Option* option_of(std::string text, const CLI::App& command) {
  constexpr std::string_view kConversion = "Could not convert: ";
  if (text.starts_with(kConversion)) text.erase(0, kConversion.size());
  return command.get_option_no_throw(text.substr(0, text.find_first_of(": =")));
}

}  // namespace

std::string command_and_help(const CLI::App& command) {
  return fmt::format("{0} (`{0} --help` lists them)", path_of(command));
}

Error wrong_value(const CLI::Option& option, const TypedOption& typed, const std::string& where) {
  const std::string expected =
      option.get_items_expected_max() == 0 ? "to be true or false" : "to be a value";
  return {ErrorCategory::input, where, fmt::format("expected {} {}", typed.name, expected),
          one_line(fmt::format("got \"{}\"", typed.value))};
}

namespace {

/// Converts `error`, which concerns `option`.
Error wrong_option(const CLI::ParseError& error, const CLI::Option& option, const CLI::App& command,
                   const TypedOption& typed) {
  const std::string where = "command line";
  const bool is_flag = option.get_items_expected_max() == 0;
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return {ErrorCategory::input, where,
            fmt::format("expected {}, as `{} --help` describes", typed.name, path_of(command)),
            "got none"};
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return {ErrorCategory::input, where,
            fmt::format("expected {} {}", typed.name, is_flag ? "once" : value_name(option)),
            is_flag ? "got it again" : "got the option without a value"};
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const std::string text = error.what();
    return {ErrorCategory::input, where,
            fmt::format("expected {} without {}", typed.name, text.substr(text.rfind(' ') + 1)),
            "got both"};
  }
  return wrong_value(option, typed, where);
}

}  // namespace

std::optional<Error> to_error(const CLI::ParseError& error, const CLI::App& program,
                              const std::vector<std::string>& arguments) {
  const CLI::App& command = innermost(program);
  const std::vector<std::string> left = program.remaining(true);
  const bool is_option = !left.empty() && left.front().starts_with("-");
  const bool has_unknown_command = has_commands(command) && !left.empty() && !is_option;
  if (error.get_exit_code() == 0 && !has_unknown_command) return std::nullopt;
  const bool is_incomplete = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool has_extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (has_unknown_command || ((is_incomplete || has_extras) && !left.empty())) {
    const std::string& word = left.front();
    return Error(ErrorCategory::input, "command line",
                 "expected an option or command of " + command_and_help(command),
                 is_option || has_unknown_command
                     ? got_word(word.substr(0, word.find('=')), command)
                     : got_value(word, command));
  }
  if (is_incomplete && has_commands(command))
    return Error(ErrorCategory::input, "command line",
                 "expected a command of " + command_and_help(command), "got none");
  if (const CLI::Option* const option = option_of(error.what(), command))
    return wrong_option(error, *option, command, as_typed(*option, arguments));
  return Error(ErrorCategory::input, "command line",
               "expected valid options for " + command_and_help(command), one_line(error.what()));
}

}  // namespace lockstep::inline v0::apps
