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
#include "lockstep/base/other_names.h"
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

/// Prefix of the OtherName of the number of ranks.
constexpr std::string_view kMpirun = "mpirun";

}  // namespace

std::string got_word(const std::string& word, const CLI::App& command) {
  const std::vector<std::string> names = known_names(command);
  for (const OtherName& other : names_here(word)) {
    if (other.name.starts_with(kMpirun) && command.get_option_no_throw("--np") != nullptr)
      return fmt::format("got \"{}\" (did you mean --np?)", word);
    if (other.name.starts_with(kMpirun))
      return fmt::format("got \"{}\" (ranks are started by {} N {})", word, other.name,
                         path_of(command));
    const std::string known(other.first_word());
    const CLI::Option* const option = command.get_option_no_throw(known);
    if (option != nullptr && option->get_positional())
      return fmt::format("got \"{}\" ({} takes {} without an option)", word, path_of(command),
                         other.name);
    if (std::ranges::find(names, known) != names.end())
      return fmt::format("got \"{}\"{}", word, other.suggestion());
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
  // "epochs=3", as YOLO and Hydra have it.
  const std::size_t equals = word.find('=');
  const std::string option_name = "--" + word.substr(0, equals);
  if (equals != std::string::npos && command.get_option_no_throw(option_name) != nullptr)
    return fmt::format("got \"{}\" (did you mean {} {}?)", word, option_name,
                       word.substr(equals + 1));
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
