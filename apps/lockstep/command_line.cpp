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

/// Names that other programs have for options.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"--batch", "--global-batch"},
    {"--dataset", "--data"},
    {"--gpus", "--devices"},
    {"--num-epochs", "--epochs"},
    {"--num-workers", "--data-threads"},
    {"--output-dir", "--checkpoint-dir"},
    {"--save-dir", "--checkpoint-dir"},
    {"--workers", "--data-threads"}};

/// `got "--modle" (did you mean --model?)`, with a name that `command` has.
std::string got_word(const std::string& word, const CLI::App& command) {
  for (const auto& [other, name] : kOtherNames)
    if (word == other && command.get_option_no_throw(std::string(name)) != nullptr)
      return fmt::format("got \"{}\" (did you mean {}?)", word, name);
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
  return {ErrorCategory::input, "command line",
          fmt::format("expected valid options for {} ({})", path_of(command), help),
          one_line(error.what())};
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
    return argument == "--" + name || argument == "--no-" + name ||
           argument.starts_with("--" + name + "=");
  });
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

/// Throws Error (input) with `where` unless `item` is an option of `command` with a valid value.
/// The parser of the command line, which sees the option again, does not know the file.
void check_item(const CLI::ConfigItem& item, CLI::App& command, const std::string& where) {
  const std::string expected =
      fmt::format("expected valid options for {} ({})", path_of(command), help_of(command));
  CLI::Option* option = command.get_option_no_throw("--" + item.name);
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
    if (!belongs_to(item, arguments.front()) || is_empty(item) || is_given(arguments, item.name))
      continue;
    check_item(item, *commands.front(), where);
    added.push_back(fmt::format("--{}={}", item.name, value_of(item)));
  }
  arguments.insert(arguments.begin() + 1, added.begin(), added.end());
  return arguments;
}

}  // namespace lockstep::apps
