// The short forms in which Slurm writes lists of hosts and of numbers into variables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::strategy {

/// "node[01-03,7],gpu1" -> node01, node02, node03, node7, gpu1. Throws Error (input) for what is no such list, and for
/// more than 100,000 hosts.
std::vector<std::string> expand_slurm_hosts(std::string_view list);

/// "2(x3),1" -> 2, 2, 2, 1. Throws Error (input) for what is no such list, and for more than 100,000 numbers.
std::vector<int> expand_slurm_counts(std::string_view list);

}  // namespace lockstep::strategy
