#include "apps/lockstep/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::apps {
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
    return argument == "--" + name || argument == "--no-" + name || argument.starts_with("--" + name + "=");
  });
}

bool belongs_to(const CLI::ConfigItem& item, const std::string& command) {
  const bool is_section_mark = item.name == "++" || item.name == "--";
  return !is_section_mark && (item.parents.empty() || (item.parents.size() == 1 && item.parents.front() == command));
}

/// What --print-config writes for an option without a value.
bool is_empty(const CLI::ConfigItem& item) {
  return std::ranges::all_of(item.inputs, [](const std::string& input) { return input.empty(); });
}

}  // namespace

std::shared_ptr<bool> add_config_options(CLI::App& command) {
  command
      .add_option(kConfig, "A file with options of this command, as --print-config writes it; the command line wins")
      ->configurable(false);
  auto print = std::make_shared<bool>(false);
  command.add_flag("--print-config", *print, "Print the options as a file for --config, and do nothing else")
      ->configurable(false);
  return print;
}

std::string config_text(const CLI::App& command) { return command.config_to_str(true, false); }

std::vector<std::string> with_config_file(std::vector<std::string> arguments) {
  const auto path = config_path(arguments);
  if (!path) return arguments;
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(*path);
  } catch (const CLI::Error& error) {
    throw Error(ErrorCategory::input, "command line", "--config needs a file of name=value lines that can be read",
                error.what());
  }
  std::vector<std::string> added;
  for (const CLI::ConfigItem& item : items)
    if (belongs_to(item, arguments.front()) && !is_empty(item) && !is_given(arguments, item.name))
      added.push_back(fmt::format("--{}={}", item.name, fmt::join(item.inputs, ",")));
  arguments.insert(arguments.begin() + 1, added.begin(), added.end());
  return arguments;
}

}  // namespace lockstep::apps
