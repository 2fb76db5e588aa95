// Synthetic measurements and their judgement.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {

/// The only finding. Fails the test unless there is exactly one.
inline Finding only(const Outcome& outcome) {
  EXPECT_EQ(outcome.findings.size(), 1U) << outcome.check;
  return outcome.findings.empty() ? Finding{} : outcome.findings.front();
}

/// The facts of ranks of one host, "a".
template <typename Facts>
Reports<Facts> on_one_host(std::vector<Facts> facts) {
  Reports<Facts> reports;
  for (Facts& mine : facts) {
    const auto rank = static_cast<int>(reports.answered.size());
    reports.answered.push_back(
        {{.rank = rank, .node = 0, .local_rank = rank, .host = "a"}, std::move(mine)});
  }
  return reports;
}

/// The facts of one rank on each of the hosts "a", "b", ….
template <typename Facts>
Reports<Facts> on_hosts(std::vector<Facts> facts) {
  Reports<Facts> reports;
  for (Facts& mine : facts) {
    const auto rank = static_cast<int>(reports.answered.size());
    reports.answered.push_back({{.rank = rank,
                                 .node = rank,
                                 .local_rank = 0,
                                 .host = std::string(1, static_cast<char>('a' + rank))},
                                std::move(mine)});
  }
  return reports;
}

}  // namespace lockstep::inline v0::apps::doctor
