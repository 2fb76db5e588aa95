// The reductions of the C interface over several ranks.
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/interop/c_api.h"

namespace {

/// Whether each rank has the sum of its part, and the parts are all elements.
bool scatters(lockstep_session* session) {
  constexpr std::size_t kCount = 1003;
  const int ranks = lockstep_world_size(session);
  std::vector<double> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    values[i] = static_cast<double>(i) + lockstep_rank(session);
  std::size_t begin = 0;
  std::size_t end = 0;
  if (lockstep_reduce_scatter(session, values.data(), kCount, LOCKSTEP_FLOAT64, LOCKSTEP_SUM,
                              &begin, &end) != LOCKSTEP_OK)
    return false;
  for (std::size_t i = begin; i < end; ++i)
    if (values[i] != static_cast<double>(i) * ranks + ranks * (ranks - 1) / 2.0) return false;
  auto elements = static_cast<std::int64_t>(end - begin);
  return lockstep_all_reduce(session, &elements, 1, LOCKSTEP_INT64, LOCKSTEP_SUM) == LOCKSTEP_OK &&
         elements == std::int64_t{kCount};
}

/// Rank r contributes r + 1 letters.
bool gathers_unequal_parts(lockstep_session* session) {
  const auto rank = static_cast<std::size_t>(lockstep_rank(session));
  const auto ranks = static_cast<std::size_t>(lockstep_world_size(session));
  const std::string mine(rank + 1, static_cast<char>('a' + rank));
  std::vector<std::size_t> sizes(ranks);
  std::string all(ranks * (ranks + 1) / 2, '-');
  // Too little room on one rank is an error on all, which changes nothing.
  const std::size_t capacity = rank == ranks - 1 ? all.size() - 1 : all.size();
  if (lockstep_all_gather_unequal(session, mine.data(), mine.size(), all.data(), capacity,
                                  sizes.data()) != LOCKSTEP_INPUT ||
      all != std::string(all.size(), '-'))
    return false;
  std::string expected;
  for (std::size_t i = 0; i < ranks; ++i) {
    expected += std::string(i + 1, static_cast<char>('a' + i));
    if (sizes[i] != i + 1) return false;
  }
  return lockstep_all_gather_unequal(session, mine.data(), mine.size(), all.data(), all.size(),
                                     sizes.data()) == LOCKSTEP_OK &&
         all == expected;
}

}  // namespace

int main() {
  lockstep_session* session = nullptr;
  if (lockstep_init(nullptr, &session) != LOCKSTEP_OK) {
    std::fprintf(stderr, "c_api_ranks: %s\n", lockstep_last_error());
    return 1;
  }
  const auto ranks = static_cast<float>(lockstep_world_size(session));
  float factorial = 1;
  for (float rank = 1; rank <= ranks; ++rank) factorial *= rank;
  int status = 0;
  if (!scatters(session) || !gathers_unequal_parts(session)) {
    std::fprintf(stderr, "c_api_ranks: wrong numbers %s\n", lockstep_last_error());
    status = 1;
  }
  for (const int op : {LOCKSTEP_SUM, LOCKSTEP_MAX, LOCKSTEP_MIN, LOCKSTEP_PRODUCT}) {
    float value = static_cast<float>(lockstep_rank(session)) + 1;
    const float expected = op == LOCKSTEP_SUM       ? ranks * (ranks + 1) / 2
                           : op == LOCKSTEP_MAX     ? ranks
                           : op == LOCKSTEP_PRODUCT ? factorial
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
