#include "apps/lockstep/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace lockstep::apps {

bool is_watched(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0) return false;
  if (size.ws_col > 0) return true;
  // A terminal without a size was made by a program.
  std::error_code unreadable;
  const std::string launchers =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", getppid(), descriptor), unreadable).string();
  return launchers.starts_with("/dev/pts/") || launchers.starts_with("/dev/tty");
}

}  // namespace lockstep::apps
