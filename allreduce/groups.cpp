#include "allreduce/groups.h"

#include <algorithm>
#include <array>
#include <utility>

#include "allreduce/communicator_impl.h"
#include "allreduce/routes/in_process.h"
#include "allreduce/routes/mpi_library.h"
#include "allreduce/routes/multi_worker.h"
#include "allreduce/routes/one_member.h"
#include "allreduce/routes/ring.h"
#include "device/error.h"

namespace lockstep::allreduce {
namespace {

struct RouteName {
  Route route;
  std::string_view name;
};

constexpr std::array<RouteName, 4> kRoutes = {
    {{Route::automatic, "auto"}, {Route::in_process, "in-process"}, {Route::ring, "ring"}, {Route::mpi, "mpi"}}};
constexpr std::array<std::string_view, 3> kLaterRoutes = {"shared-memory", "nccl", "hierarchical"};

int size_of(MPI_Comm ranks) {
  int size = 0;
  MPI_Comm_size(ranks, &size);
  return size;
}

std::shared_ptr<MpiGroup> make_between_ranks(MPI_Comm ranks, Route route) {
  if (route == Route::in_process)
    throw Error(ErrorCategory::input, "--allreduce", "needed auto, ring or mpi between ranks",
                fmt::format("got in-process for {} ranks", size_of(ranks)));
  if (route == Route::mpi) return make_mpi_library(ranks);
  return make_ring(ranks);
}

std::vector<int> replicas_of_ranks(MPI_Comm ranks, int local_replicas) {
  std::vector<int> replicas(static_cast<std::size_t>(size_of(ranks)));
  const int status = MPI_Allgather(&local_replicas, 1, MPI_INT, replicas.data(), 1, MPI_INT, ranks);
  if (status != MPI_SUCCESS)
    throw Error(ErrorCategory::communication, "mpi", "needed the number of replicas of each rank",
                fmt::format("MPI error {}", status));
  return replicas;
}

std::vector<Communicator> handles(std::vector<std::shared_ptr<Communicator::Impl>> members) {
  std::vector<Communicator> group;
  for (auto& member : members) group.emplace_back(std::move(member));
  return group;
}

}  // namespace

Route parse_route(std::string_view name) {
  for (const RouteName& known : kRoutes)
    if (known.name == name) return known.route;
  for (const std::string_view later : kLaterRoutes)
    if (later == name)
      throw Error(ErrorCategory::input, "--allreduce", "needed auto, in-process, ring or mpi",
                  fmt::format("got {}, which comes with a later version", name));
  throw Error(ErrorCategory::input, "--allreduce", "needed auto, in-process, ring or mpi",
              fmt::format("got \"{}\"", name));
}

std::string to_string(Route route) {
  for (const RouteName& known : kRoutes)
    if (known.route == route) return std::string(known.name);
  return "unknown";
}

std::vector<Communicator> make_in_process_group(int size) {
  LOCKSTEP_CHECK_OP(size, >, 0);
  if (size == 1) return handles({make_one_member()});
  return handles(make_in_process(size));
}

Communicator make_mpi_group(MPI_Comm ranks, Route route) {
  if (size_of(ranks) == 1) return Communicator(make_one_member());
  return Communicator(make_between_ranks(ranks, route));
}

std::vector<Communicator> make_multi_worker_group(MPI_Comm ranks, int local_replicas, Route route) {
  LOCKSTEP_CHECK_OP(local_replicas, >, 0);
  const std::vector<int> replicas = replicas_of_ranks(ranks, local_replicas);
  if (replicas.size() == 1) return make_in_process_group(local_replicas);
  auto between = make_between_ranks(ranks, route);
  // A rank with one replica among others with one is a plain member; among others with more it must speak their
  // protocol.
  if (std::ranges::all_of(replicas, [](int count) { return count == 1; })) return {Communicator(std::move(between))};
  return handles(make_multi_worker(std::move(between), replicas));
}

}  // namespace lockstep::allreduce
