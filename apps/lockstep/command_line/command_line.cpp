#include "apps/lockstep/command_line/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "apps/lockstep/command_line/field_options.h"
#include "apps/lockstep/command_line/parse_error.h"
#include "apps/lockstep/process_setup.h"
#include "apps/lockstep/torchscript.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/file_descriptor.h"
#include "lockstep/base/system/ownership.h"

namespace lockstep::inline v0::apps {

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

/// A line of the file.
struct ConfigItem {
  std::string section;  ///< empty: at the top
  std::string name;
  std::string value;
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

/// The value of "name=VALUE": in double quotes with \", \\, \n and \r, in single quotes as it is,
/// or a text up to a blank and '#'. nullopt for an open quote, or text after a closed one.
std::optional<std::string> read_value(std::string_view text) {
  const char quote = text.empty() ? '\0' : text.front();
  if (quote != '"' && quote != '\'') return std::string(trimmed(text.substr(0, text.find(" #"))));
  std::string value;
  std::size_t at = 1;
  for (; at < text.size() && text[at] != quote; ++at) {
    const bool is_escape = quote == '"' && text[at] == '\\' && at + 1 < text.size();
    if (is_escape) ++at;
    const char c = text[at];
    value += !is_escape ? c : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
  }
  const std::string_view rest = trimmed(text.substr(std::min(at + 1, text.size())));
  if (at >= text.size() || (!rest.empty() && rest.front() != '#')) return std::nullopt;
  return value;
}

/// Throws Error (input) with `where` for a line that is none.
std::vector<ConfigItem> items_of(const std::string& text, const std::string& where) {
  std::vector<ConfigItem> items;
  std::string section;
  std::istringstream lines(text);
  std::size_t number = 0;
  for (std::string whole; std::getline(lines, whole);) {
    ++number;
    const std::string_view line = trimmed(whole);
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = trimmed(line.substr(1, line.size() - 2));
      continue;
    }
    const std::size_t equals = line.find('=');
    const std::string_view name = trimmed(line.substr(0, equals));
    auto value = equals == std::string_view::npos ? std::nullopt
                                                  : read_value(trimmed(line.substr(equals + 1)));
    if (name.empty() || !value)
      throw Error(ErrorCategory::input, where, "expected a readable file of name=value lines",
                  fmt::format("got \"{}\" in line {}", line, number));
    items.push_back({section, std::string(name), std::move(*value)});
  }
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
bool belongs_to(const ConfigItem& item, const CLI::App& command, const CLI::App& program,
                const std::string& where) {
  if (item.section.empty()) return true;
  const bool is_known = !program
                             .get_subcommands([&](const CLI::App* other) {
                               return other->get_name() == item.section;
                             })
                             .empty();
  if (!is_known)
    throw Error(ErrorCategory::input, where,
                fmt::format("expected options of {0}, or in a section [{0}]", command.get_name()),
                fmt::format("got \"{}\" in a section [{}]", item.name, item.section));
  return item.section == command.get_name();
}

/// Throws Error (input) with `where` unless `item` is an option of `command`, which `option` is,
/// with a valid value. The parser of the command line, which sees the option again, does not know
/// the file.
void check_item(const ConfigItem& item, CLI::App& command, CLI::Option* option,
                const std::string& where) {
  const std::string expected = "expected valid options for " + command_and_help(command);
  if (option == nullptr)
    throw Error(ErrorCategory::input, where, expected, got_word("--" + item.name, command));
  try {
    option->add_result(item.value);
    option->run_callback();
    option->clear();
  } catch (const CLI::ParseError&) {
    throw wrong_value(*option, {"--" + item.name, item.value}, where);
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
      ->group("Configuration");
  auto print = std::make_shared<bool>(false);
  command
      .add_flag("--print-config", *print, "Print the options in the format of --config, and exit")
      ->group("Configuration");
  return print;
}

namespace {

/// The innermost command that `arguments` begin with.
const CLI::App& named_command(const std::vector<std::string>& arguments, const CLI::App& program) {
  const CLI::App* command = &program;
  for (const std::string& word : arguments) {
    const auto named =
        command->get_subcommands([&](const CLI::App* inner) { return inner->get_name() == word; });
    if (named.empty()) break;
    command = named.front();
  }
  return *command;
}

nlohmann::ordered_json schema_with_commands(const CLI::App& command) {
  nlohmann::ordered_json schema = schema_of(command);
  for (const CLI::App* const inner : command.get_subcommands([](const CLI::App*) { return true; }))
    schema["commands"].push_back(schema_with_commands(*inner));
  return schema;
}

}  // namespace

std::optional<std::string> help_as_json(const std::vector<std::string>& arguments,
                                        const CLI::App& program) {
  const auto has = [&](const char* word) { return std::ranges::count(arguments, word) > 0; };
  if (!(has("--help") || has("-h")) || !has("--json")) return std::nullopt;
  return dump_json(schema_with_commands(named_command(arguments, program)), 1);
}

void require_one_name(const std::vector<std::string>& arguments, const CLI::App& program) {
  require_one_name(arguments, named_command(arguments, program), "command line");
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
                "expected a file of name=value lines, as --print-config writes it",
                "got the name of a YAML file");
  const ConfigFile file = read_config(*path, where);
  std::vector<std::string> added;
  for (const ConfigItem& item : items_of(file.text, where)) {
    // --print-config writes an empty value for an option that is not set.
    if (!belongs_to(item, *commands.front(), program, where) || item.value.empty()) continue;
    CLI::Option* const option = commands.front()->get_option_no_throw("--" + item.name);
    if (option != nullptr && is_given(arguments, *option)) continue;
    check_item(item, *commands.front(), option, where);
    if (item.name == "model" && is_torchscript(item.value) && !file.foreign_writer.empty())
      throw Error(ErrorCategory::input, where,
                  "expected a TorchScript file, which is a program, on the command line (--model "
                  "FILE.pt), or in a file that only this user can write",
                  file.foreign_writer);
    added.push_back(fmt::format("--{}={}", item.name, item.value));
  }
  require_one_name(added, *commands.front(), where);
  arguments.insert(arguments.begin() + 1, added.begin(), added.end());
  return arguments;
}

}  // namespace lockstep::inline v0::apps
