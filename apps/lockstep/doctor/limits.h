// What the system lets a process have: open files, locked memory.
#pragma once

#include <cstdint>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct LimitFacts {
  std::int64_t open_files = 0;       ///< soft limit; -1 for none
  std::int64_t open_files_hard = 0;  ///< up to which anyone may raise it; -1 for none
  std::int64_t locked_bytes = 0;     ///< soft limit; -1 for none
  bool has_rdma = false;             ///< network cards that want their buffers locked

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(LimitFacts, open_files, open_files_hard, locked_bytes, has_rdma)
};

LimitFacts measure_limits();

/// Descriptors that a rank of a job of `ranks` may need: files of data, connections, libraries.
std::int64_t open_files_needed(int ranks);

/// `open-files`: too few descriptors.
Outcome judge_open_files(const Reports<LimitFacts>& reports);
/// `locked-memory`: less than RDMA cards want.
Outcome judge_locked_memory(const Reports<LimitFacts>& reports);

}  // namespace lockstep::apps::doctor
