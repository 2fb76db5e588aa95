#include "lockstep/base/error.h"

#include <cstdlib>

namespace lockstep {

int exit_status(ErrorCategory category) noexcept {
  switch (category) {
    case ErrorCategory::input:
      return 2;
    case ErrorCategory::data:
    case ErrorCategory::checkpoint:
    case ErrorCategory::output:
      return 3;
    case ErrorCategory::communication:
      return 4;
    case ErrorCategory::device:
      return 5;
    case ErrorCategory::diverged:
      return 6;
  }
  return 1;
}

namespace detail {

void check_failed(const char* file, int line, const char* expression, const std::string& values) {
  // The launcher's variable, so that a check deep in the library needs no handle to the session to name its rank.
  const char* rank = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})  // Open MPI, MPICH, Slurm
    if (rank == nullptr) rank = std::getenv(name);
  throw CheckFailure(
      fmt::format("[{}:{}] check failed on rank {}: {}; {}", file, line, rank ? rank : "0", expression, values));
}

}  // namespace detail
}  // namespace lockstep
