// Made-up measurements.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// Ranks of host "a", all on one node.
template <typename Facts>
Reports<Facts> on_one_host(std::vector<Facts> facts) {
  Reports<Facts> reports;
  for (Facts& mine : facts) {
    const auto rank = static_cast<int>(reports.answered.size());
    reports.answered.push_back({{.rank = rank, .node = 0, .local_rank = rank, .host = "a"}, std::move(mine)});
  }
  return reports;
}

/// One rank on each of the hosts "a", "b", …
template <typename Facts>
Reports<Facts> on_hosts(std::vector<Facts> facts) {
  Reports<Facts> reports;
  for (Facts& mine : facts) {
    const auto rank = static_cast<int>(reports.answered.size());
    reports.answered.push_back(
        {{.rank = rank, .node = rank, .local_rank = 0, .host = std::string(1, static_cast<char>('a' + rank))},
         std::move(mine)});
  }
  return reports;
}

}  // namespace lockstep::apps::doctor
