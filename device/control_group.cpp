#include "device/control_group.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "device/kernel_file.h"

namespace lockstep::device {
namespace {

namespace fs = std::filesystem;

/// The folder of `group` below `mounted`, and those of all groups above it.
void add_with_those_above(std::vector<fs::path>& folders, const fs::path& mounted, fs::path group) {
  for (;; group = group.parent_path()) {
    folders.push_back(mounted / group.relative_path());
    if (group == group.parent_path()) return;
  }
}

bool contains_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// The folders whose limits for `controller` hold for this process. A container may show a group under another name
/// than its host, so some may not exist.
std::vector<fs::path> folders_of_groups(const fs::path& root, const std::string& controller) {
  const fs::path mounted = root / "sys/fs/cgroup";
  std::vector<fs::path> folders = {mounted};
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    // "0::/job/step" of version 2, "4:cpu,cpuacct:/job/step" of version 1
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) add_with_those_above(folders, mounted, group);
    if (!contains_word(controllers, controller)) continue;
    add_with_those_above(folders, mounted / controllers, group);
    if (controllers != controller) add_with_those_above(folders, mounted / controller, group);
  }
  return folders;
}

/// Processors that the limits of one folder grant; nothing for no limit.
std::optional<double> quota_in(const fs::path& folder) {
  std::ifstream limit(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  if (limit >> quota >> period && period > 0) return quota / period;
  const auto quota_of_version_1 = number_of(folder / "cpu.cfs_quota_us");
  const auto period_of_version_1 = number_of(folder / "cpu.cfs_period_us");
  if (quota_of_version_1.value_or(0) > 0 && period_of_version_1.value_or(0) > 0)
    return static_cast<double>(*quota_of_version_1) / static_cast<double>(*period_of_version_1);
  return std::nullopt;
}

std::optional<std::int64_t> memory_left_in(const fs::path& folder) {
  const auto left = [&](const char* most, const char* used, const char* droppable) -> std::optional<std::int64_t> {
    const auto limit = number_of(folder / most);
    const auto taken = number_of(folder / used);
    if (!limit || !taken) return std::nullopt;
    return std::max<std::int64_t>(0, *limit - *taken + number_in(folder / "memory.stat", droppable).value_or(0));
  };
  if (const auto bytes = left("memory.max", "memory.current", "inactive_file")) return bytes;
  return left("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
}

}  // namespace

double processor_quota(const fs::path& root) {
  double least = 0;
  for (const fs::path& folder : folders_of_groups(root, "cpu"))
    if (const auto quota = quota_in(folder)) least = least == 0 ? *quota : std::min(least, *quota);
  return least;
}

std::int64_t memory_left_in_group(const fs::path& root) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const fs::path& folder : folders_of_groups(root, "memory"))
    if (const auto bytes = memory_left_in(folder)) least = std::min(least, *bytes);
  return least;
}

}  // namespace lockstep::device
