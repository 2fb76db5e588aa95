#include "strategy/core_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "device/control_group.h"
#include "device/processors.h"

namespace lockstep::strategy {
namespace {

std::string processors_of_this_process() {
  const std::vector<int> processors = device::allowed_processors();
  if (processors.empty()) return "1";
  std::string text(static_cast<std::size_t>(processors.back()) + 1, '0');
  for (const int processor : processors) text[static_cast<std::size_t>(processor)] = '1';
  return text;
}

CoreClaim parse_claim(const std::string& text) {
  CoreClaim claim;
  std::istringstream(text) >> claim.node >> claim.quota >> claim.processors;
  return claim;
}

}  // namespace

int share_of_cores(const std::vector<CoreClaim>& claims, int rank) {
  const CoreClaim& mine = claims[static_cast<std::size_t>(rank)];
  const auto same_cores = std::ranges::count_if(
      claims, [&](const CoreClaim& claim) { return claim.node == mine.node && claim.processors == mine.processors; });
  const auto cores = static_cast<int>(std::ranges::count(mine.processors, '1') / same_cores);
  if (mine.quota <= 0) return std::max(1, cores);
  const auto same_quota = std::ranges::count_if(
      claims, [&](const CoreClaim& claim) { return claim.node == mine.node && claim.quota == mine.quota; });
  return std::max(1, std::min(cores, static_cast<int>(mine.quota / static_cast<double>(same_quota))));
}

int share_of_cores(const Session& session) {
  const std::string mine =
      fmt::format("{} {} {}", session.node(), device::processor_quota(), processors_of_this_process());
  std::vector<CoreClaim> claims;
  for (const std::string& text : session.all_gather(mine)) claims.push_back(parse_claim(text));
  return share_of_cores(claims, session.rank());
}

}  // namespace lockstep::strategy
