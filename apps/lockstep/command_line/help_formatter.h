// The layout of `--help`, in lines that fit the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace lockstep::inline v0::apps {

/// Width of help texts: that of the terminal (terminal_columns()), clamped to 40 to 100 columns.
std::size_t help_width();

/// The placeholder for the value of `option`: "DIR", "auto|never|require"; an unnamed number is N,
/// or X if it may have a fraction. Defaults to CLI11's name of the type.
std::string value_name(const CLI::Option& option);

/// The layout of CLI::Formatter, with texts wrapped at spaces. Shows the first long name of an
/// option and those that negate it, but not its aliases.
class HelpFormatter : public CLI::Formatter {
 public:
  /// `width`: columns per line.
  explicit HelpFormatter(std::size_t width) : width_(width) {}

  /// Separates parts by at most one empty line.
  std::string make_help(const CLI::App* command, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_description(const CLI::App* command) const override;
  std::string make_footer(const CLI::App* command) const override;
  /// Shows the first line of a command's description.
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  /// Shows a default as TYPE=VALUE, with every version of CLI11.
  std::string make_option_opts(const CLI::Option* option) const override;

 private:
  std::string row(const std::string& left, const std::string& text) const;

  std::size_t width_;
};

}  // namespace lockstep::inline v0::apps
