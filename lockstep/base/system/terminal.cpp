#include "lockstep/base/system/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

constexpr int kUsualColumns = 80;

bool is_launchers_terminal(int descriptor) {
  std::error_code unreadable;
  const std::string launchers =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", getppid(), descriptor),
                                    unreadable)
          .string();
  return launchers.starts_with("/dev/pts/") || launchers.starts_with("/dev/tty");
}

/// A terminal without a size was made by a program.
bool is_of_launcher(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col == 0;
}

}  // namespace

bool is_watched(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return false;
  return size.ws_col > 0 || is_launchers_terminal(descriptor);
}

// mpirun gives its ranks a terminal as standard output, but a pipe as standard error.
std::string_view message_start() {
  const bool is_on_terminal = is_watched(STDERR_FILENO) || (is_of_launcher(STDOUT_FILENO) &&
                                                            is_launchers_terminal(STDERR_FILENO));
  return is_on_terminal ? "\r\x1b[K" : "";
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  const int columns = given == nullptr ? 0 : std::atoi(given);
  return columns > 0 ? columns : kUsualColumns;
}

}  // namespace lockstep
