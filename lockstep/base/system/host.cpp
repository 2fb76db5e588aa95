#include "lockstep/base/system/host.h"

#include <omp.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::inline v0 {

std::optional<std::int64_t> number_of(const std::filesystem::path& file) {
  std::ifstream text(file);
  if (std::int64_t number = 0; text >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word, rest; lines >> word; std::getline(lines, rest)) {
    if (std::int64_t number = 0; word == name && lines >> number) return number;
  }
  return std::nullopt;
}

std::string number_list(std::span<const int> numbers, std::size_t shortest_run) {
  std::string list;
  for (std::size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    const bool is_run = end - begin >= shortest_run;
    if (!is_run) end = begin + 1;
    if (!list.empty()) list += ',';
    list += std::to_string(numbers[begin]);
    if (is_run) list += '-' + std::to_string(numbers[end - 1]);
  }
  return list;
}

int available_cores() {
  if (const auto processors = allowed_processors(); !processors.empty())
    return static_cast<int>(processors.size());
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::string processor_list() { return number_list(allowed_processors()); }

// oneDNN's kernels run in OpenMP regions; the number of threads is a setting of the thread that
// enters them. They partition their work for the number of threads that they request, so neither
// OMP_DYNAMIC nor OMP_THREAD_LIMIT may reduce it.
void set_thread_budget(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::clamp(threads, 1, std::max(1, omp_get_thread_limit())));
}

int thread_budget() { return omp_get_max_threads(); }

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  if (!(statm >> total >> resident)) return 0;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown processor";
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

namespace {

constexpr std::size_t kMaxWords = 1024;  // for 1024 processors each

/// The affinity mask, as large as the kernel requires; empty on any other error.
std::vector<cpu_set_t> read_mask() {
  for (std::vector<cpu_set_t> mask(1); mask.size() <= kMaxWords;
       mask.assign(2 * mask.size(), cpu_set_t{})) {
    if (sched_getaffinity(0, mask.size() * sizeof(cpu_set_t), mask.data()) == 0) return mask;
    if (errno != EINVAL) break;  // EINVAL: the mask is too small
  }
  return {};
}

std::vector<int> processors_in(const std::vector<cpu_set_t>& mask) {
  std::vector<int> processors;
  const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (std::size_t processor = 0; processor < 8 * bytes; ++processor)
    if (CPU_ISSET_S(processor, bytes, mask.data()))
      processors.push_back(static_cast<int>(processor));
  return processors;
}

}  // namespace

std::vector<int> allowed_processors() { return processors_in(read_mask()); }

std::vector<int> processors_of_cpu_set() {
  const std::vector<cpu_set_t> before = read_mask();
  std::vector<cpu_set_t> all = before;
  const std::size_t bytes = all.size() * sizeof(cpu_set_t);
  for (std::size_t processor = 0; processor < 8 * bytes; ++processor)
    CPU_SET_S(processor, bytes, all.data());
  if (before.empty() || sched_setaffinity(0, bytes, all.data()) != 0) return processors_in(before);
  std::vector<int> processors = allowed_processors();
  sched_setaffinity(0, bytes, before.data());
  return processors;
}

namespace {

namespace fs = std::filesystem;

/// Adds the directories of `group` and of all its parent groups below `mounted`.
void add_with_parents(std::vector<fs::path>& folders, const fs::path& mounted, fs::path group) {
  for (;; group = group.parent_path()) {
    folders.push_back(mounted / group.relative_path());
    if (group == group.parent_path()) return;
  }
}

bool contains_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// The directories whose limits for `controller` apply to this process. A container may show a
/// group under a different name than its host, so some may not exist.
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
    if (controllers.empty()) add_with_parents(folders, mounted, group);
    if (!contains_word(controllers, controller)) continue;
    add_with_parents(folders, mounted / controllers, group);
    if (controllers != controller) add_with_parents(folders, mounted / controller, group);
  }
  return folders;
}

/// Processors granted by the limits in one directory; nullopt for no limit.
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
  const auto left = [&](const char* limit_name, const char* usage_name,
                        const char* droppable) -> std::optional<std::int64_t> {
    const auto limit = number_of(folder / limit_name);
    const auto usage = number_of(folder / usage_name);
    if (!limit || !usage) return std::nullopt;
    return std::max<std::int64_t>(
        0, *limit - *usage + number_in(folder / "memory.stat", droppable).value_or(0));
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

std::int64_t available_host_memory(const std::filesystem::path& root) {
  const std::int64_t left = memory_left_in_group(root);
  const auto kibibytes = number_in(root / "proc/meminfo", "MemAvailable:");
  return kibibytes ? std::min(left, *kibibytes * 1024) : left;
}

void use_huge_pages(void* data, std::size_t bytes) {
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (address + bytes) / kHugePage * kHugePage;
  if (begin < end)
    ::madvise(static_cast<std::byte*>(data) + (begin - address), end - begin, MADV_HUGEPAGE);
}

}  // namespace lockstep::inline v0
