#include "strategy/core_share.h"

#include <sched.h>

#include <algorithm>
#include <charconv>

namespace lockstep::strategy {
namespace {

std::string processors_of_this_process() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return "1";
  std::string processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) processors.push_back(CPU_ISSET(i, &mask) ? '1' : '0');
  return processors;
}

CoreClaim parse_claim(const std::string& text) {
  CoreClaim claim;
  const std::size_t space = text.find(' ');
  std::from_chars(text.data(), text.data() + space, claim.node);
  claim.processors = text.substr(space + 1);
  return claim;
}

}  // namespace

int share_of_cores(const std::vector<CoreClaim>& claims, int rank) {
  const CoreClaim& mine = claims[static_cast<std::size_t>(rank)];
  const auto cores = std::count(mine.processors.begin(), mine.processors.end(), '1');
  return std::max(1, static_cast<int>(cores / std::count(claims.begin(), claims.end(), mine)));
}

int share_of_cores(const Session& session) {
  std::vector<CoreClaim> claims;
  for (const std::string& text :
       session.all_gather(std::to_string(session.node()) + " " + processors_of_this_process()))
    claims.push_back(parse_claim(text));
  return share_of_cores(claims, session.rank());
}

}  // namespace lockstep::strategy
