#include "device/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace lockstep::device {
namespace {

/// The number behind `name` in a file of lines "name number ...".
std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word, rest; lines >> word; std::getline(lines, rest)) {
    if (std::int64_t number = 0; word == name && lines >> number) return number;
  }
  return std::nullopt;
}

/// The number that is all of a file; nothing where there is none, or "max".
std::optional<std::int64_t> number_of(const std::filesystem::path& file) {
  std::ifstream text(file);
  if (std::int64_t number = 0; text >> number) return number;
  return std::nullopt;
}

/// "/job_7/step_0", the process's group below the mounted ones; "/" where it is not known.
std::filesystem::path control_group(const std::filesystem::path& root) {
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

}  // namespace

std::int64_t available_host_memory(const std::filesystem::path& root) {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  if (const auto kibibytes = number_in(root / "proc/meminfo", "MemAvailable:")) available = *kibibytes * 1024;
  // Every group above bounds those in it.
  for (std::filesystem::path group = control_group(root);; group = group.parent_path()) {
    const std::filesystem::path directory = root / "sys/fs/cgroup" / group.relative_path();
    const auto most = number_of(directory / "memory.max");
    const auto used = number_of(directory / "memory.current");
    const auto droppable = number_in(directory / "memory.stat", "inactive_file").value_or(0);
    if (most && used) available = std::min(available, std::max<std::int64_t>(0, *most - *used + droppable));
    if (group == group.parent_path()) return available;
  }
}

}  // namespace lockstep::device
