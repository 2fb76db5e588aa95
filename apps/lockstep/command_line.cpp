#include "apps/lockstep/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "apps/lockstep/parse_error.h"
#include "apps/lockstep/process_setup.h"
#include "apps/lockstep/torchscript.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/system/ownership.h"

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

/// The last one, as of all options.
std::optional<std::string> config_path(const std::vector<std::string>& arguments) {
  std::optional<std::string> path;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(kConfig + "=")) path = arguments[i].substr(kConfig.size() + 1);
    if (arguments[i] == kConfig && i + 1 < arguments.size()) path = arguments[++i];
  }
  return path;
}

struct ConfigFile {
  std::string text;
  std::string foreign_writer;  ///< foreign_writer() of the file
};

/// A file of name=value lines, which may be a pipe. Throws Error (input).
ConfigFile read_config(const std::string& path, const std::string& where) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCategory::input, where, "expected a readable file of name=value lines", why);
  };
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) refuse("got a directory");
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) refuse(std::generic_category().message(errno));
  std::string text(kMaxBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got == 0) break;
    if (got > 0)
      size += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      refuse(std::generic_category().message(errno));
  }
  text.resize(size);
  if (text.size() > kMaxBytes) refuse(fmt::format("got more than {} bytes", kMaxBytes));
  return {std::move(text), foreign_writer(file.get())};
}

// Stands for '#' within quotes, at which CLI11 2.1 would cut the value off.
constexpr char kHash = '\x1a';

/// The lines without comments, so that every '#' that is left is part of a value: as kHash.
std::string without_comments(const std::string& text) {
  std::string result;
  char quote = 0;
  bool is_comment = false;
  for (const char c : text) {
    if (c == '\n') {
      quote = 0;
      is_comment = false;
    } else if (quote == 0 && c == '#') {
      is_comment = true;
    } else if (quote == 0 ? c == '"' || c == '\'' : c == quote) {
      quote = quote == 0 ? c : 0;
    }
    if (!is_comment) result += c == '#' ? kHash : c;
  }
  return result;
}

// A line between two of the same name, which CLI11 would make one item of two values.
constexpr const char* kApart = "\x1b";

/// The lines, so that each is an item of its own.
std::string lines_apart(const std::string& text) {
  constexpr std::string_view kOfNames =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  std::string result;
  std::string last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
    const std::size_t end = std::min(line.find_first_not_of(kOfNames, begin), line.size());
    const std::size_t equals = std::min(line.find_first_not_of(" \t", end), line.size());
    const bool is_item = end > begin && line.substr(equals).starts_with('=');
    const std::string name = is_item ? line.substr(begin, end - begin) : std::string();
    if (is_item && name == last) result += fmt::format("{}=1\n", kApart);
    if (is_item) last = name;
    result += line + '\n';
  }
  return result;
}

std::vector<CLI::ConfigItem> items_of(const std::string& text) {
  std::istringstream lines(lines_apart(without_comments(text)));
  std::vector<CLI::ConfigItem> items = CLI::ConfigTOML().from_config(lines);
  std::erase_if(items, [](const CLI::ConfigItem& item) { return item.name == kApart; });
  for (CLI::ConfigItem& item : items)
    for (std::string& input : item.inputs) std::ranges::replace(input, kHash, '#');
  return items;
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

/// Whether an item of a file is an option of `command`, and not in the section of another one.
/// Throws Error (input) with `where` for a section that no command has.
bool belongs_to(const CLI::ConfigItem& item, const CLI::App& command, const CLI::App& program,
                const std::string& where) {
  const bool is_section_mark = item.name == "++" || item.name == "--";
  if (is_section_mark) return false;
  if (item.parents.empty()) return true;
  const std::string& section = item.parents.front();
  const bool is_known =
      !program.get_subcommands([&](const CLI::App* other) { return other->get_name() == section; })
           .empty();
  if (!is_known || (section == command.get_name() && item.parents.size() > 1))
    throw Error(
        ErrorCategory::input, where,
        fmt::format("expected options of {0}, or in a section [{0}]", command.get_name()),
        fmt::format("got \"{}\" in a section [{}]", item.name, fmt::join(item.parents, ".")));
  return section == command.get_name();
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

void print_config_text(const CLI::App& command) {
  for (const CLI::Option* const option : command.get_options())
    for (const std::string& value : option->results())
      if (value.find_first_of("\n\r") != std::string::npos)
        throw Error(ErrorCategory::input, option->get_single_name(),
                    "expected a value without line breaks for --print-config, whose lines are "
                    "options",
                    fmt::format("got \"{}\"", value));
  print_exactly(config_text(command));
}

std::vector<std::pair<std::string, std::string>> config_values(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const CLI::ConfigItem& item : items_of(text))
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
  const ConfigFile file = read_config(*path, where);
  std::vector<CLI::ConfigItem> items;
  try {
    items = items_of(file.text);
  } catch (const CLI::Error& error) {
    throw Error(ErrorCategory::input, where, "expected a readable file of name=value lines",
                error.what());
  }
  std::vector<std::string> added;
  for (const CLI::ConfigItem& item : items) {
    if (!belongs_to(item, *commands.front(), program, where) || is_empty(item)) continue;
    CLI::Option* const option = commands.front()->get_option_no_throw("--" + item.name);
    if (option != nullptr && is_given(arguments, *option)) continue;
    check_item(item, *commands.front(), option, where);
    if (item.name == "model" && is_torchscript(value_of(item)) && !file.foreign_writer.empty())
      throw Error(ErrorCategory::input, where,
                  "expected a TorchScript file, which is a program, on the command line (--model "
                  "FILE.pt), or in a file that only this user can write",
                  file.foreign_writer);
    added.push_back(fmt::format("--{}={}", item.name, value_of(item)));
  }
  require_one_name(added, *commands.front(), where);
  arguments.insert(arguments.begin() + 1, added.begin(), added.end());
  return arguments;
}

}  // namespace lockstep::apps
