#include "apps/lockstep/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/lockstep/arguments.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::apps {
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

/// What other programs, or other commands of this one, call an option: the name, and the option
/// with the value that it stands for, if any. Of several rows with the same name, the first whose
/// option the command has counts. "files" and "PATH" are arguments without a name.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"--accumulation-steps", "--accumulate"},
    {"--amp", "--precision bfloat16"},
    {"--arch", "--model"},
    {"--backend", "--allreduce"},
    {"--batch", "--global-batch"},
    {"--bf16", "--precision bfloat16"},
    {"--checkpoint", "--checkpoint-dir"},
    {"--checkpoint", "PATH"},
    {"--checkpoint-dir", "--checkpoint"},
    {"--checkpoint-dir", "PATH"},
    {"--data", "files"},
    {"--data", "--input"},
    {"--dataset", "--data"},
    {"--decay", "--weight-decay"},
    {"--fp16", "--precision float16"},
    {"--gpus", "--devices"},
    {"--grad-clip", "--clip-norm"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--log-dir", "--summary-dir"},
    {"--logdir", "--summary-dir"},
    {"--max-epochs", "--epochs"},
    {"--max-grad-norm", "--clip-norm"},
    {"--max-steps", "--steps"},
    {"--model", "--checkpoint"},
    {"--num-classes", "--classes"},
    {"--num-epochs", "--epochs"},
    {"--num-gpus", "--devices"},
    {"--num-steps", "--steps"},
    {"--num-workers", "--data-threads"},
    {"--output", "--checkpoint-dir"},
    {"--output-dir", "--checkpoint-dir"},
    {"--output-dir", "--output"},
    {"--pretrained", "--init-from"},
    {"--save-dir", "--checkpoint-dir"},
    {"--scheduler", "--lr-schedule"},
    {"--silent", "--quiet"},
    {"--tensorboard", "--summary-dir"},
    {"--test-data", "--validation-data"},
    {"--test-data", "--data"},
    {"--threads", "--data-threads"},
    {"--train-data", "--data"},
    {"--val-data", "--validation-data"},
    {"--validation-data", "--data"},
    {"--warmup", "--warmup-steps"},
    {"--wd", "--weight-decay"},
    {"--weights", "--init-from"},
    {"--weights", "--checkpoint"},
    {"--workers", "--data-threads"}};

/// `got "--modle" (did you mean --model?)`, with a name that `command` has.
std::string got_word(const std::string& word, const CLI::App& command) {
  for (const auto& [other, name] : kOtherNames) {
    if (word != other) continue;
    const CLI::Option* const option =
        command.get_option_no_throw(std::string(name.substr(0, name.find(' '))));
    if (option != nullptr && option->get_positional())
      return fmt::format("got \"{}\" ({} takes {} without an option)", word, path_of(command),
                         name);
    if (option != nullptr) return fmt::format("got \"{}\" (did you mean {}?)", word, name);
  }
  const std::vector<std::string> names = known_names(command);
  return got_name(word, std::vector<std::string_view>(names.begin(), names.end()));
}

/// Whether `word`, which is no option, is one of the files that a pattern after --data matched.
bool is_of_unquoted_pattern(const std::string& word, const CLI::App& command) {
  const CLI::Option* data = command.get_option_no_throw("--data");
  std::error_code unreadable;
  return data != nullptr && data->count() > 0 && !word.starts_with("-") &&
         std::filesystem::exists(word, unreadable);
}

/// The help of `command`, for an error.
std::string help_of(const CLI::App& command) {
  return fmt::format("`{} --help` lists them", path_of(command));
}

}  // namespace

Error to_error(const CLI::ParseError& error, const CLI::App& program) {
  const CLI::App& command = innermost(program);
  const std::string help = help_of(command);
  const std::vector<std::string> left = program.remaining(true);
  const bool no_command =
      &command == &program && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if ((no_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) && !left.empty()) {
    const std::string word = left.front().substr(0, left.front().find('='));
    const char* hint =
        is_of_unquoted_pattern(left.front(), command)
            ? "; quote a pattern, such as --data 'train-*.tfrecord', so that the shell passes it on"
            : "";
    return {ErrorCategory::input, "command line",
            fmt::format("expected an option or command of {} ({})", path_of(command), help),
            got_word(word, command) + hint};
  }
  if (no_command)
    return {ErrorCategory::input, "command line", fmt::format("expected a command ({})", help),
            "got none"};
  // CLI11's text is "Could not convert: --epochs = two".
  const std::string text = one_line(error.what());
  const std::size_t name = text.find(": ");
  const std::size_t equals = text.find(" = ");
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr && name < equals &&
      equals != std::string::npos)
    return {ErrorCategory::input, "command line",
            fmt::format("expected {} of {} to be a number",
                        text.substr(name + 2, equals - name - 2), path_of(command)),
            fmt::format("got \"{}\"", text.substr(std::max(equals + 3, text.rfind(',') + 1)))};
  return {ErrorCategory::input, "command line",
          fmt::format("expected valid options for {} ({})", path_of(command), help), text};
}

std::vector<std::string> without_help_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

namespace {

const std::string kConfig = "--config";

std::optional<std::string> config_path(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(kConfig + "=")) return arguments[i].substr(kConfig.size() + 1);
    if (arguments[i] == kConfig && i + 1 < arguments.size()) return arguments[i + 1];
  }
  return std::nullopt;
}

bool is_given(const std::vector<std::string>& arguments, const std::string& name) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument == "--" + name || argument.starts_with("--" + name + "=");
  });
}

/// Throws Error (input) if an option that takes a value is given by two of its names, of which the
/// parser would silently use the last. Flags are different: --no-shuffle after --shuffle is meant.
void require_one_name(const std::vector<std::string>& arguments, const CLI::App& command,
                      const std::string& where) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() == 0) continue;
    std::string first;
    for (const std::string& name : option->get_lnames()) {
      if (!is_given(arguments, name)) continue;
      if (!first.empty())
        throw Error(ErrorCategory::input, where,
                    fmt::format("expected --{} or --{}, two names of the same option", first, name),
                    "got both");
      first = name;
    }
  }
}

/// Whether `arguments` have the option by any of its names.
bool is_given(const std::vector<std::string>& arguments, const CLI::Option& option) {
  return std::ranges::any_of(option.get_lnames(),
                             [&](const std::string& name) { return is_given(arguments, name); });
}

bool belongs_to(const CLI::ConfigItem& item, const std::string& command) {
  const bool is_section_mark = item.name == "++" || item.name == "--";
  return !is_section_mark &&
         (item.parents.empty() || (item.parents.size() == 1 && item.parents.front() == command));
}

/// --print-config writes an empty value for an option that is not set.
bool is_empty(const CLI::ConfigItem& item) {
  return std::ranges::all_of(item.inputs, [](const std::string& input) { return input.empty(); });
}

std::string value_of(const CLI::ConfigItem& item) {
  return fmt::format("{}", fmt::join(item.inputs, ","));
}

/// Throws Error (input) with `where` unless `item` is an option of `command`, which `option` is,
/// with a valid value.
/// The parser of the command line, which sees the option again, does not know the file.
void check_item(const CLI::ConfigItem& item, CLI::App& command, CLI::Option* option,
                const std::string& where) {
  const std::string expected =
      fmt::format("expected valid options for {} ({})", path_of(command), help_of(command));
  if (option == nullptr)
    throw Error(ErrorCategory::input, where, expected, got_word("--" + item.name, command));
  try {
    option->add_result(value_of(item));
    option->run_callback();
    option->clear();
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCategory::input, where, expected, one_line(error.what()));
  } catch (const Error& error) {
    throw Error(error.category(), where, expected, error.what());
  }
}

}  // namespace

std::shared_ptr<bool> add_config_options(CLI::App& command) {
  command
      .add_option(kConfig,
                  "File with options of this command, as written by --print-config; the command "
                  "line takes precedence")
      ->type_name("FILE")
      ->configurable(false)
      ->group("Configuration");
  auto print = std::make_shared<bool>(false);
  command
      .add_flag("--print-config", *print, "Print the options in the format of --config, and exit")
      ->configurable(false)
      ->group("Configuration");
  return print;
}

std::string config_text(const CLI::App& command) { return command.config_to_str(true, false); }

void require_one_name(const std::vector<std::string>& arguments, const CLI::App& program) {
  const CLI::App* command = &program;
  for (const std::string& word : arguments) {
    const auto named =
        command->get_subcommands([&](const CLI::App* inner) { return inner->get_name() == word; });
    if (named.empty()) break;
    command = named.front();
  }
  require_one_name(arguments, *command, "command line");
}

std::vector<std::string> with_config_file(std::vector<std::string> arguments, CLI::App& program) {
  const auto path = config_path(arguments);
  if (!path) return arguments;
  const auto commands = program.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == arguments.front(); });
  // The parser refuses --config itself if the command does not have it.
  if (commands.empty() || commands.front()->get_option_no_throw(kConfig) == nullptr)
    return arguments;
  const std::string where = fmt::format("{} {}", kConfig, *path);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(*path);
  } catch (const CLI::Error& error) {
    throw Error(ErrorCategory::input, where, "expected a readable file of name=value lines",
                error.what());
  }
  std::vector<std::string> added;
  for (const CLI::ConfigItem& item : items) {
    if (!belongs_to(item, arguments.front()) || is_empty(item)) continue;
    CLI::Option* const option = commands.front()->get_option_no_throw("--" + item.name);
    if (option != nullptr && is_given(arguments, *option)) continue;
    check_item(item, *commands.front(), option, where);
    added.push_back(fmt::format("--{}={}", item.name, value_of(item)));
  }
  require_one_name(added, *commands.front(), where);
  arguments.insert(arguments.begin() + 1, added.begin(), added.end());
  return arguments;
}

}  // namespace lockstep::apps
