#include "apps/lockstep/command_line/help_formatter.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/terminal.h"

namespace lockstep::inline v0::apps {
namespace {

/// Wraps each line of `text` separately and keeps its indentation.
std::string with_wrapped_lines(std::string_view text, std::size_t width) {
  std::string lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t indentation = std::min(line.find_first_not_of(' '), line.size());
    lines.append(indentation, ' ');
    lines += wrap_words(line, indentation, width) + '\n';
  }
  return lines;
}

}  // namespace

std::string value_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  return type.starts_with("FLOAT") ? "X" : type;
}

std::size_t help_width() {
  return static_cast<std::size_t>(std::clamp(terminal_columns(STDOUT_FILENO), 40, 100));
}

std::string HelpFormatter::make_help(const CLI::App* command, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(command, std::move(name), mode);
  for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
  if (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return with_wrapped_lines(CLI::Formatter::make_description(command), width_);
}

std::string HelpFormatter::make_footer(const CLI::App* command) const {
  return with_wrapped_lines(CLI::Formatter::make_footer(command), width_);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  const std::string description = command->get_description();
  return row(command->get_name(), description.substr(0, description.find('\n')));
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return row(make_option_name(option, is_positional) + make_option_opts(option),
             make_option_desc(option));
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return CLI::Formatter::make_option_name(option, is_positional);
  std::string names;
  for (const std::string& name : option->get_snames()) names += "-" + name + ",";
  const std::vector<std::string>& negations = option->get_fnames();
  for (const std::string& name : option->get_lnames())
    if (name == option->get_lnames().front() || std::ranges::count(negations, name) > 0)
      names += "--" + name + ",";
  names.pop_back();
  return names;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  std::string text = CLI::Formatter::make_option_opts(option);
  if (const std::string type = option->get_type_name();
      !type.empty() && text.starts_with(" " + type))
    text.replace(1, type.size(), value_name(*option));
  const std::string value = option->get_default_str();
  const std::string bracketed = " [" + value + "] ";  // since CLI11 2.4
  if (const std::size_t at = text.find(bracketed); !value.empty() && at != std::string::npos)
    text.replace(at, bracketed.size(), "=" + value);
  return text;
}

std::string HelpFormatter::row(const std::string& left, const std::string& text) const {
  const std::size_t column = std::min(get_column_width(), width_ / 2);
  std::string line = "  " + wrap_words(left, 2, width_);
  if (line.size() >= column)
    line += '\n' + std::string(column, ' ');
  else
    line.resize(column, ' ');
  return line + wrap_words(text, column, width_) + '\n';
}

}  // namespace lockstep::inline v0::apps
