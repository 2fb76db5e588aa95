#include "lockstep/allreduce/groups/ranks.h"

#include <map>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/member/one_member.h"
#include "lockstep/allreduce/transport/mpi/mpi_transport.h"
#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {

std::shared_ptr<MessageGroup> make_ring_of(std::shared_ptr<Transport> transport) {
  bool has_one_node = true;
  for (int member = 1; member < transport->size(); ++member)
    has_one_node = has_one_node && transport->node_of(member) == transport->node_of(0);
  return make_ring(std::move(transport), has_one_node ? RingOptions() : kRingBetweenNodes);
}

Communicator make_ranks(std::shared_ptr<Transport> transport) {
  if (transport->size() == 1) return Communicator(make_one_member());
  return Communicator(make_ring_of(std::move(transport)));
}

std::optional<Communicator> make_subset(const Communicator& ranks, std::span<const int> members) {
  if (ranks.size() == 1) return ranks;
  std::shared_ptr<Transport> subset = ranks.impl()->transport()->subset(members);
  if (!subset) return std::nullopt;
  return make_ranks(std::move(subset));
}

int node_of(const Communicator& ranks, int rank) {
  return ranks.size() == 1 ? 0 : ranks.impl()->transport()->node_of(rank);
}

bool is_over_mpi(const Communicator& ranks) {
  return ranks.size() > 1 && mpi_communicator(*ranks.impl()->transport()) != 0;
}

Communicator ranks_of_node(const Communicator& ranks) {
  std::map<int, std::vector<int>> nodes;
  for (int rank = 0; rank < ranks.size(); ++rank) nodes[node_of(ranks, rank)].push_back(rank);
  std::optional<Communicator> mine;
  for (const auto& [node, members] : nodes)
    if (auto one = make_subset(ranks, members)) mine = std::move(one);
  return *mine;
}

}  // namespace lockstep::inline v0::allreduce
