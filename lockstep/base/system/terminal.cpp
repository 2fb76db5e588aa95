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

}  // namespace

bool is_watched(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return false;
  if (size.ws_col > 0) return true;
  // A terminal without a size was made by a program.
  std::error_code unreadable;
  const std::string launchers =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", getppid(), descriptor),
                                    unreadable)
          .string();
  return launchers.starts_with("/dev/pts/") || launchers.starts_with("/dev/tty");
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  const int columns = given == nullptr ? 0 : std::atoi(given);
  return columns > 0 ? columns : kUsualColumns;
}

}  // namespace lockstep
