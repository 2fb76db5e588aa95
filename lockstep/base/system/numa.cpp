#include "lockstep/base/system/numa.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <string>

namespace lockstep::inline v0 {
namespace {

constexpr std::string_view kNode = "node";

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

bool may_run_on(const cpu_set_t& mask, int processor) {
  return processor >= 0 && processor < CPU_SETSIZE && CPU_ISSET(processor, &mask);
}

}  // namespace

std::vector<int> parse_number_list(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    const auto [first_end, error] = std::from_chars(at, end, first);
    if (error != std::errc{}) break;
    at = first_end;
    int last = first;
    if (at != end && *at == '-') {
      const auto [last_end, no_number] = std::from_chars(at + 1, end, last);
      if (no_number != std::errc{}) break;
      at = last_end;
    }
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (at == end || *at != ',') break;
    ++at;
  }
  return numbers;
}

int numa_node_of_pci(std::string_view id, const std::filesystem::path& devices) {
  std::string name(id);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  const std::vector<int> node = parse_number_list(first_line(devices / name / "numa_node"));
  return node.empty() ? -1 : node.front();
}

std::vector<int> numa_nodes_of_process(const std::filesystem::path& nodes) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {};
  std::vector<int> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(nodes, none)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kNode)) continue;
    const std::vector<int> number = parse_number_list(std::string_view(name).substr(kNode.size()));
    if (number.size() != 1) continue;
    const std::vector<int> processors = parse_number_list(first_line(entry.path() / "cpulist"));
    if (std::ranges::any_of(processors, [&](int processor) { return may_run_on(mask, processor); }))
      found.push_back(number.front());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace lockstep::inline v0
