#include "apps/lockstep/parse_error.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/text.h"

namespace lockstep::apps {
namespace {

/// The command that was parsed last: `train`, or `convert` of `data convert`.
const CLI::App& innermost(const CLI::App& program) {
  const auto commands = program.get_subcommands();
  return commands.empty() ? program : innermost(*commands.back());
}

std::string path_of(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_name()
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

}  // namespace

Error to_error(const CLI::ParseError& error, const CLI::App& program) {
  const CLI::App& command = innermost(program);
  const std::string help = fmt::format("`{} --help` lists them", path_of(command));
  const std::vector<std::string> left = program.remaining(true);
  const bool no_command = &command == &program && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if ((no_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) && !left.empty()) {
    const std::vector<std::string> names = known_names(command);
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string word = left.front().substr(0, left.front().find('='));
    return {ErrorCategory::input, "command line", fmt::format("needed options of {}: {}", path_of(command), help),
            got_name(word, known)};
  }
  if (no_command)
    return {ErrorCategory::input, "command line", fmt::format("needed a command: {}", help), "none was given"};
  return {ErrorCategory::input, "command line",
          fmt::format("needed options as {} wants them: {}", path_of(command), help), one_line(error.what())};
}

}  // namespace lockstep::apps
