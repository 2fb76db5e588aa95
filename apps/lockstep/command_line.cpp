#include "apps/lockstep/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "apps/lockstep/parse_error.h"
#include "lockstep/base/error.h"

namespace lockstep::apps {

std::vector<std::string> without_help_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  while (!arguments.empty() && (arguments.front() == "help" || arguments.front() == "--help"))
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
  const std::string expected = "expected valid options for " + command_and_help(command);
  if (option == nullptr)
    throw Error(ErrorCategory::input, where, expected, got_word("--" + item.name, command));
  try {
    option->add_result(value_of(item));
    option->run_callback();
    option->clear();
  } catch (const CLI::ParseError&) {
    throw wrong_value(*option, {"--" + item.name, value_of(item)}, where);
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

std::vector<std::pair<std::string, std::string>> config_values(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::pair<std::string, std::string>> values;
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(lines))
    if (!is_empty(item)) values.emplace_back(item.name, value_of(item));
  return values;
}

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
  if (path->ends_with(".yaml") || path->ends_with(".yml"))
    throw Error(ErrorCategory::input, where,
                "expected a file of name=value lines (TOML), as --print-config writes it",
                "got the name of a YAML file");
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
