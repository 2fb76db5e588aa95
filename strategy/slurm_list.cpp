#include "strategy/slurm_list.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "device/error.h"

namespace lockstep::strategy {
namespace {

// More in one list is a slip of the pen. Brackets multiply, so the whole of the list is counted.
constexpr std::size_t kMostHosts = 100000;
constexpr std::size_t kLongestName = 255;
constexpr std::size_t kMostDigits = 9;

[[noreturn]] void refuse(std::string_view needed, std::string_view list) {
  constexpr std::size_t kShown = 200;
  throw Error(ErrorCategory::input, "launch", needed,
              fmt::format("got \"{}{}\"", list.substr(0, kShown), list.size() > kShown ? "…" : ""));
}

[[noreturn]] void refuse_hosts(std::string_view list) {
  refuse("needed hosts as Slurm lists them: node[01-03],gpu1", list);
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Cuts `list` at the commas that no bracket encloses.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (depth < 0 || depth > 1) refuse_hosts(list);
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  if (depth != 0) refuse_hosts(list);
  return parts;
}

/// The numbers of "01-03" or "7", with their leading zeros.
std::vector<std::string> range_of(std::string_view range, std::string_view list) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const auto from = number(first);
  const auto to = number(last);
  if (!from || !to || *to < *from || first.size() > kMostDigits || static_cast<std::size_t>(*to - *from) >= kMostHosts)
    refuse_hosts(list);
  std::vector<std::string> numbers;
  for (int value = *from; value <= *to; ++value) numbers.push_back(fmt::format("{:0{}}", value, first.size()));
  return numbers;
}

/// What one part stands for: text with any number of brackets in it. At most `most` names.
std::vector<std::string> expand(std::string_view part, std::string_view list, std::size_t most) {
  std::vector<std::string> names = {""};
  const auto append = [&](const std::vector<std::string>& ends) {
    if (names.size() * ends.size() > most) refuse_hosts(list);
    std::vector<std::string> longer;
    for (const std::string& name : names)
      for (const std::string& end : ends) longer.push_back(name + end);
    if (longer.front().size() > kLongestName) refuse_hosts(list);
    names = std::move(longer);
  };
  for (std::size_t open = part.find('['); open != std::string_view::npos; open = part.find('[')) {
    const std::size_t close = part.find(']');
    append({std::string(part.substr(0, open))});
    std::vector<std::string> values;
    for (const std::string_view range : parts_of(part.substr(open + 1, close - open - 1))) {
      for (std::string& value : range_of(range, list)) values.push_back(std::move(value));
      if (values.size() > most) refuse_hosts(list);
    }
    append(values);
    part.remove_prefix(close + 1);
  }
  append({std::string(part)});
  return names;
}

}  // namespace

std::vector<std::string> expand_slurm_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view part : parts_of(list)) {
    if (part.empty() || hosts.size() >= kMostHosts) refuse_hosts(list);
    for (std::string& host : expand(part, list, kMostHosts - hosts.size())) hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<int> expand_slurm_counts(std::string_view list) {
  constexpr std::string_view kNeeded = "needed numbers as Slurm lists them: 2(x3),1";
  std::vector<int> counts;
  for (std::string_view part : parts_of(list)) {
    int times = 1;
    if (const std::size_t open = part.find("(x"); open != std::string_view::npos) {
      const auto given = part.back() == ')' ? number(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
      if (!given || *given < 1) refuse(kNeeded, list);
      times = *given;
      part = part.substr(0, open);
    }
    const auto count = number(part);
    if (!count || counts.size() + static_cast<std::size_t>(times) > kMostHosts) refuse(kNeeded, list);
    counts.insert(counts.end(), static_cast<std::size_t>(times), *count);
  }
  return counts;
}

}  // namespace lockstep::strategy
