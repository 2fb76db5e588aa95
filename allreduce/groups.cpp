#include "allreduce/groups.h"

#include <algorithm>
#include <array>
#include <utility>

#include "allreduce/communicator_impl.h"
#include "allreduce/routes/hierarchical.h"
#include "allreduce/routes/in_process.h"
#include "allreduce/routes/mpi_library.h"
#include "allreduce/routes/multi_worker.h"
#include "allreduce/routes/node_memory.h"
#include "allreduce/routes/one_member.h"
#include "allreduce/routes/ring.h"
#include "allreduce/routes/shared_memory.h"
#include "device/error.h"

namespace lockstep::allreduce {
namespace {

struct RouteName {
  Route route;
  std::string_view name;
};

constexpr std::array<RouteName, 6> kRoutes = {{{Route::automatic, "auto"},
                                               {Route::in_process, "in-process"},
                                               {Route::shared_memory, "shared-memory"},
                                               {Route::ring, "ring"},
                                               {Route::hierarchical, "hierarchical"},
                                               {Route::mpi, "mpi"}}};
constexpr std::string_view kRouteNames = "auto, in-process, shared-memory, ring, hierarchical or mpi";

int size_of(MPI_Comm ranks) {
  int size = 0;
  MPI_Comm_size(ranks, &size);
  return size;
}

// The ranks of this rank's node, and what the job looks like from above.
class Nodes {
 public:
  explicit Nodes(MPI_Comm ranks) {
    MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_);
    smallest_ = largest_ = size_of(node_);
    MPI_Allreduce(MPI_IN_PLACE, &smallest_, 1, MPI_INT, MPI_MIN, ranks);
    MPI_Allreduce(MPI_IN_PLACE, &largest_, 1, MPI_INT, MPI_MAX, ranks);
    is_one_ = smallest_ == size_of(ranks);
  }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;
  ~Nodes() { MPI_Comm_free(&node_); }

  MPI_Comm node() const { return node_; }
  bool is_one() const { return is_one_; }
  int most_ranks() const { return largest_; }

 private:
  MPI_Comm node_ = MPI_COMM_NULL;
  int smallest_ = 0;
  int largest_ = 0;
  bool is_one_ = false;
};

// Ranks of one host that do not see each other's memory, such as in containers, still have the network.
std::shared_ptr<MpiGroup> make_automatic(MPI_Comm ranks, const Nodes& nodes) {
  if (nodes.most_ranks() == 1) return make_ring(ranks);
  if (!can_share_memory(ranks, nodes.node())) return make_ring(ranks);
  return nodes.is_one() ? make_shared_memory(ranks) : make_hierarchical(ranks, nodes.node());
}

std::shared_ptr<MpiGroup> make_between_ranks(MPI_Comm ranks, Route route) {
  if (route == Route::mpi) return make_mpi_library(ranks);
  if (route == Route::ring) return make_ring(ranks);
  const Nodes nodes(ranks);
  if (route == Route::automatic) return make_automatic(ranks, nodes);
  if (route == Route::hierarchical) return make_hierarchical(ranks, nodes.node());
  if (route == Route::in_process)
    throw Error(ErrorCategory::input, "--allreduce",
                "needed auto, shared-memory, ring, hierarchical or mpi between ranks",
                fmt::format("got in-process for {} ranks", size_of(ranks)));
  if (!nodes.is_one())
    throw Error(ErrorCategory::input, "--allreduce", "needed auto, ring, hierarchical or mpi between nodes",
                "got shared-memory for ranks of several nodes");
  return make_shared_memory(ranks);
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
  throw Error(ErrorCategory::input, "--allreduce", fmt::format("needed {}", kRouteNames),
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
