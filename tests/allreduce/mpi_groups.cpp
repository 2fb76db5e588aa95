#include <fmt/format.h>

#include "allreduce/routes/ring.h"
#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

}  // namespace

std::vector<GroupKind> group_kinds() {
  const int ranks = world_size();
  const auto between = [](Route route) { return std::vector{make_mpi_group(MPI_COMM_WORLD, route)}; };
  const auto workers = [](int replicas, Route route) {
    return make_multi_worker_group(MPI_COMM_WORLD, replicas, route);
  };
  // Rank r drives 1 + r % 2 replicas: 1, 2, 1, 2.
  const int uneven = ranks + ranks / 2;
  std::vector<GroupKind> kinds = {
      {.name = "ring", .size = ranks, .make = [=] { return between(Route::ring); }},
      {.name = "mpi", .size = ranks, .make = [=] { return between(Route::mpi); }, .is_exact = false},
      {.name = "workers_of_1", .size = ranks, .make = [=] { return workers(1, Route::automatic); }},
      {.name = "workers_of_2",
       .size = 2 * ranks,
       .make = [=] { return workers(2, Route::ring); },
       .named_beside_last = 2 * ranks - 2},
      {.name = "workers_of_2_by_mpi",
       .size = 2 * ranks,
       .make = [=] { return workers(2, Route::mpi); },
       .is_exact = false,
       .named_beside_last = 2 * ranks - 2},
      {.name = "uneven_workers",
       .size = uneven,
       .make = [=] { return workers(1 + world_rank() % 2, Route::ring); },
       .named_beside_last = ranks % 2 == 0 ? uneven - 2 : 0},
  };
  // A ring that cuts even small buffers, so that many segments, empty ones among them, go round.
  if (ranks > 1)
    kinds.push_back({.name = "ring_of_small_segments", .size = ranks, .make = [] {
                       return std::vector{
                           Communicator(make_ring(MPI_COMM_WORLD, {.gather_bytes = 0, .segment_bytes = 4096}))};
                     }});
  return kinds;
}

}  // namespace lockstep::allreduce
