// Who reads how much, for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/order/batch_plan.h"

namespace lockstep::strategy {

/// "1.2 MB": in powers of 1000, three digits.
std::string bytes_text(std::int64_t bytes);

/// The records of an epoch as ranks read them: a line for the whole, and, of several ranks, one for each; of more than
/// kMostRanksShown the least and the most of them. `files` of 0: the records are not in files.
inline constexpr std::size_t kMostRanksShown = 16;
std::string shard_table(std::string_view policy, std::int64_t files, std::int64_t records, std::int64_t bytes,
                        const std::vector<data::WorkerShare>& shares);

}  // namespace lockstep::strategy
