#include "strategy/tf_config.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "device/error.h"
#include "strategy/cluster.h"

namespace lockstep::strategy {

void check_tf_config(const Session& session) {
  std::string problem;
  try {
    if (const auto cluster = Cluster::from_environment()) cluster->check_against_mpi(session.rank(), session.size());
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::vector<std::string> problems = session.all_gather(problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty())
      throw Error(ErrorCategory::input, "strategy",
                  "needed a TF_CONFIG that agrees with the launcher on every rank, or none",
                  fmt::format("rank {}: {}", rank, problems[rank]));
}

}  // namespace lockstep::strategy
