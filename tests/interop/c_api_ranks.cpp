// The reductions of the C interface over several ranks.
#include <cstdio>
#include <initializer_list>

#include "lockstep/interop/c_api.h"

int main() {
  lockstep_session* session = nullptr;
  if (lockstep_init(nullptr, &session) != LOCKSTEP_OK) {
    std::fprintf(stderr, "c_api_ranks: %s\n", lockstep_last_error());
    return 1;
  }
  const auto ranks = static_cast<float>(lockstep_world_size(session));
  int status = 0;
  for (const int op : {LOCKSTEP_SUM, LOCKSTEP_MAX, LOCKSTEP_MIN}) {
    float value = static_cast<float>(lockstep_rank(session)) + 1;
    const float expected = op == LOCKSTEP_SUM   ? ranks * (ranks + 1) / 2
                           : op == LOCKSTEP_MAX ? ranks
                                                : 1;
    if (lockstep_all_reduce(session, &value, 1, LOCKSTEP_FLOAT32, op) == LOCKSTEP_OK &&
        value == expected)
      continue;
    std::fprintf(stderr, "c_api_ranks: operation %d: expected %g, got %g %s\n", op,
                 static_cast<double>(expected), static_cast<double>(value), lockstep_last_error());
    status = 1;
  }
  lockstep_finalize(session);
  return status;
}
