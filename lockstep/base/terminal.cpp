#include "lockstep/base/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep::inline v0 {
namespace {

constexpr int kDefaultColumns = 80;

bool is_launchers_terminal(int descriptor) {
  std::error_code unreadable;
  const std::string launchers =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", getppid(), descriptor),
                                    unreadable)
          .string();
  return launchers.starts_with("/dev/pts/") || launchers.starts_with("/dev/tty");
}

/// Whether a program such as mpirun created the terminal: it has no size.
bool is_pseudo_terminal(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col == 0;
}

}  // namespace

bool is_watched(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return false;
  return size.ws_col > 0 || is_launchers_terminal(descriptor);
}

// Under mpirun, standard output is a terminal, but standard error is a pipe.
std::string_view message_start() {
  const bool is_on_terminal = is_watched(STDERR_FILENO) || (is_pseudo_terminal(STDOUT_FILENO) &&
                                                            is_launchers_terminal(STDERR_FILENO));
  return is_on_terminal ? "\r\x1b[K" : "";
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* text = std::getenv("COLUMNS");
  const int columns = text == nullptr ? 0 : std::atoi(text);
  return columns > 0 ? columns : kDefaultColumns;
}

std::string wrap_words(std::string_view text, std::size_t column, std::size_t width) {
  std::string lines;
  std::size_t used = column;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    if (used > column && used + 1 + word.size() > width) {
      lines += '\n';
      lines.append(column, ' ');
      used = column;
    }
    if (used > column) lines += ' ';
    used += word.size() + (used > column ? 1 : 0);
    lines += word;
  }
  return lines;
}

}  // namespace lockstep::inline v0
