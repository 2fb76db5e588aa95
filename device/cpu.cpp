#include "device/cpu.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>
#include <vector>

#include "device/processors.h"

namespace lockstep::device {

int available_cores() {
  if (const auto processors = allowed_processors(); !processors.empty()) return static_cast<int>(processors.size());
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::string processor_list() {
  const std::vector<int> processors = allowed_processors();
  std::string list;
  for (std::size_t begin = 0, end = 0; begin < processors.size(); begin = end) {
    for (end = begin + 1; end < processors.size() && processors[end] == processors[end - 1] + 1;) ++end;
    if (!list.empty()) list += ',';
    list += std::to_string(processors[begin]);
    if (end - begin > 1) list += '-' + std::to_string(processors[end - 1]);
  }
  return list;
}

// oneDNN's kernels run in OpenMP regions; the number of threads is a setting of the thread that enters them.
// They cut their work for the number they ask for, so they must get that many: neither OMP_DYNAMIC nor OMP_THREAD_LIMIT
// may give them fewer.
void set_thread_budget(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::clamp(threads, 1, std::max(1, omp_get_thread_limit())));
}

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
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown processor";
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

}  // namespace lockstep::device
