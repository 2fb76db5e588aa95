// The reductions of the C interface over several ranks.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>
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

/// Rank r sends r + i letters to rank i, at once and in the background.
bool sends_to_all(lockstep_session* session) {
  const auto rank = static_cast<std::size_t>(lockstep_rank(session));
  const auto ranks = static_cast<std::size_t>(lockstep_world_size(session));
  std::string mine;
  std::string expected;
  std::vector<std::size_t> bytes;
  for (std::size_t other = 0; other < ranks; ++other) {
    bytes.push_back(rank + other);
    mine += std::string(rank + other, static_cast<char>('a' + rank));
    expected += std::string(rank + other, static_cast<char>('a' + other));
  }
  std::vector<std::size_t> sizes(ranks);
  std::string all(expected.size(), '-');
  lockstep_request* request = nullptr;
  return lockstep_all_to_all(session, mine.data(), bytes.data(), all.data(), all.size(),
                             sizes.data()) == LOCKSTEP_OK &&
         all == expected && sizes == bytes &&
         lockstep_all_to_all_start(session, mine.data(), bytes.data(), all.data(), 0, sizes.data(),
                                   &request) == LOCKSTEP_OK &&
         lockstep_wait(request) == (ranks == 1 ? LOCKSTEP_OK : LOCKSTEP_INPUT);
}

/// Three collectives in the background, of which the second gives the first operand of the third.
bool reduces_in_the_background(lockstep_session* session) {
  const int ranks = lockstep_world_size(session);
  const int rank = lockstep_rank(session);
  std::vector<double> values(1000, rank + 1);
  std::vector<unsigned char> bytes(100, static_cast<unsigned char>(100 + rank));
  lockstep_request* mean = nullptr;
  lockstep_request* sum = nullptr;
  lockstep_request* copy = nullptr;
  if (lockstep_all_reduce_start(session, values.data(), values.size(), LOCKSTEP_FLOAT64,
                                LOCKSTEP_AVERAGE, 2, 10, &mean) != LOCKSTEP_OK ||
      lockstep_all_reduce_start(session, bytes.data(), bytes.size(), LOCKSTEP_UINT8, LOCKSTEP_SUM,
                                1, 1, &sum) != LOCKSTEP_OK ||
      lockstep_broadcast_start(session, values.data(), sizeof(double), ranks - 1, &copy) !=
          LOCKSTEP_OK)
    return false;
  int done = 0;
  while (done == 0)
    if (lockstep_test(copy, &done) != LOCKSTEP_OK) return false;
  if (lockstep_wait(copy) != LOCKSTEP_OK || lockstep_wait(sum) != LOCKSTEP_OK ||
      lockstep_wait(mean) != LOCKSTEP_OK)
    return false;
  const auto total = static_cast<unsigned char>(100 * ranks + ranks * (ranks - 1) / 2);
  return values[7] == 10.0 * (ranks + 1) && bytes[99] == total &&
         lockstep_all_reduce(session, bytes.data(), 1, LOCKSTEP_UINT8, LOCKSTEP_AVERAGE) ==
             LOCKSTEP_INPUT;
}

/// Arrays that are longer, and shorter, than what is copied at a time, and an empty one.
bool reduces_arrays_together(lockstep_session* session) {
  const int ranks = lockstep_world_size(session);
  const int rank = lockstep_rank(session);
  std::vector<std::vector<float>> arrays = {
      std::vector<float>(3), {}, std::vector<float>(300'001), std::vector<float>(1)};
  std::vector<void*> pointers;
  std::vector<std::size_t> counts;
  float number = 0;
  for (std::vector<float>& array : arrays) {
    for (float& value : array) value = number++ + static_cast<float>(rank);
    pointers.push_back(array.data());
    counts.push_back(array.size());
  }
  lockstep_request* request = nullptr;
  if (lockstep_grouped_all_reduce_start(session, pointers.data(), counts.data(), arrays.size(),
                                        LOCKSTEP_FLOAT32, LOCKSTEP_SUM, 2, 0.5,
                                        &request) != LOCKSTEP_OK ||
      lockstep_wait(request) != LOCKSTEP_OK)
    return false;
  number = 0;
  const int ranks_before = ranks * (ranks - 1) / 2;
  for (const std::vector<float>& array : arrays)
    for (const float value : array)
      if (value != number++ * static_cast<float>(ranks) + static_cast<float>(ranks_before))
        return false;  // exact
  return lockstep_grouped_all_reduce_start(session, pointers.data(), nullptr, 1, LOCKSTEP_FLOAT32,
                                           LOCKSTEP_SUM, 1, 1, nullptr) == LOCKSTEP_INPUT &&
         lockstep_grouped_all_reduce_start(session, nullptr, nullptr, 0, LOCKSTEP_FLOAT32,
                                           LOCKSTEP_SUM, 1, 1, nullptr) == LOCKSTEP_OK;
}

/// The ranks in reverse, and the last rank alone.
bool works_in_groups(lockstep_session* session) {
  const int ranks = lockstep_world_size(session);
  const int rank = lockstep_rank(session);
  std::vector<int> reversed;
  for (int other = ranks - 1; other >= 0; --other) reversed.push_back(other);
  lockstep_session* all = nullptr;
  lockstep_session* last = nullptr;
  const int last_rank = ranks - 1;
  if (lockstep_group_create(session, reversed.data(), reversed.size(), &all) != LOCKSTEP_OK ||
      lockstep_group_create(session, &last_rank, 1, &last) != LOCKSTEP_OK)
    return false;
  bool is_right = lockstep_rank(all) == ranks - 1 - rank && lockstep_world_size(all) == ranks &&
                  (last != nullptr) == (rank == last_rank);
  int value = rank;
  is_right = is_right && lockstep_broadcast(all, &value, sizeof(value), 0) == LOCKSTEP_OK &&
             value == last_rank;
  if (last != nullptr) {
    double one = 5;
    is_right = is_right && lockstep_world_size(last) == 1 &&
               lockstep_all_reduce(last, &one, 1, LOCKSTEP_FLOAT64, LOCKSTEP_SUM) == LOCKSTEP_OK &&
               one == 5;
  }
  lockstep_finalize(last);
  lockstep_finalize(all);
  const int twice[] = {0, 0};
  return is_right && lockstep_group_create(session, twice, 2, &all) == LOCKSTEP_INPUT &&
         lockstep_barrier(session) == LOCKSTEP_OK;
}

/// A loop that fits y = x^4 + 2 x by a polynomial; `state` says whether it passes the number of
/// samples.
int fit(lockstep_session* session, void* state) {
  constexpr std::size_t kWeights = 5;
  struct Model {
    std::array<double, kWeights> weights{};
    std::array<double, kWeights> slopes{};
  } model;
  lockstep_parameter parameter = {"weights", model.weights.data(), model.slopes.data(), kWeights,
                                  LOCKSTEP_FLOAT64};
  lockstep_optimizer* optimizer = nullptr;
  const auto descend = [](void* all) {
    auto* mine = static_cast<Model*>(all);
    for (std::size_t k = 0; k < kWeights; ++k) mine->weights[k] -= 0.1 * mine->slopes[k];
    return 0;
  };
  if (lockstep_optimizer_create(session, &parameter, 1, nullptr, descend, &model, &optimizer) !=
      LOCKSTEP_OK)
    return 1;
  // The first rank has one of seven samples.
  const int ranks = lockstep_world_size(session);
  const int rank = lockstep_rank(session);
  const int begin = rank == 0 ? 0 : 1 + 6 * (rank - 1) / (ranks - 1);
  const int end = ranks == 1 ? 7 : rank == 0 ? 1 : 1 + 6 * rank / (ranks - 1);
  int status = LOCKSTEP_OK;
  for (int step = 0; step < 3; ++step) {
    model.slopes = {};
    for (int i = begin; i < end; ++i) {
      const double x = (i - 3) / 3.0;
      double error = -std::pow(x, 4) - 2 * x;
      for (std::size_t k = 0; k < kWeights; ++k)
        error += model.weights[k] * std::pow(x, static_cast<double>(k));
      for (std::size_t k = 0; k < kWeights; ++k)
        model.slopes[k] += 2 * error * std::pow(x, static_cast<double>(k)) / (end - begin);
    }
    status |= lockstep_backward_done(optimizer, state != nullptr ? end - begin : 1);
    status |= lockstep_step(optimizer, nullptr);
  }
  lockstep_optimizer_free(optimizer);
  return status;
}

bool verifies_loops(lockstep_session* session) {
  int right = 1;
  if (lockstep_verify_equivalence(session, fit, &right) != LOCKSTEP_OK) return false;
  const int status = lockstep_verify_equivalence(session, fit, nullptr);
  const std::string error = lockstep_last_error();
  return lockstep_world_size(session) == 1
             ? status == LOCKSTEP_OK
             : status == LOCKSTEP_INPUT && error.find("in place of samples") != std::string::npos;
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
  const std::pair<const char*, bool (*)(lockstep_session*)> checks[] = {
      {"reduce_scatter", scatters},          {"all_gather_unequal", gathers_unequal_parts},
      {"all_to_all", sends_to_all},          {"requests", reduces_in_the_background},
      {"grouped", reduces_arrays_together},  {"groups", works_in_groups},
      {"verify_equivalence", verifies_loops}};
  for (const auto& [name, is_right] : checks) {
    if (is_right(session)) continue;
    std::fprintf(stderr, "c_api_ranks: %s: wrong result; %s\n", name, lockstep_last_error());
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
