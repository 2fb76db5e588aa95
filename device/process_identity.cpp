#include "device/process_identity.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace lockstep::device {
namespace {

std::string read_process_namespace() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::erase(boot, '-');
  constexpr std::size_t kBootDigits = 16;
  const bool is_hex = boot.find_first_not_of("0123456789abcdef") == std::string::npos;
  struct stat status = {};
  if (boot.size() < kBootDigits || !is_hex || ::stat("/proc/self/ns/pid", &status) != 0) return {};
  return fmt::format("{}-{:x}", boot.substr(0, kBootDigits), status.st_ino);
}

}  // namespace

const std::string& process_namespace() {
  static const std::string text = read_process_namespace();
  return text;
}

bool is_process_gone(pid_t process) { return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH; }

}  // namespace lockstep::device
