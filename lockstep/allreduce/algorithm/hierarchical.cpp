#include "lockstep/allreduce/algorithm/hierarchical.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/algorithm/node_memory.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

/// The members of each node, in the order of ranks.
std::map<int, std::vector<int>> members_by_node(const Transport& transport) {
  std::map<int, std::vector<int>> nodes;
  for (int member = 0; member < transport.size(); ++member)
    nodes[transport.node_of(member)].push_back(member);
  return nodes;
}

int smallest_node(const Transport& transport) {
  std::size_t lanes = static_cast<std::size_t>(transport.size());
  for (const auto& [node, members] : members_by_node(transport))
    lanes = std::min(lanes, members.size());
  return static_cast<int>(lanes);
}

class Hierarchical final : public MessageGroup {
 public:
  Hierarchical(const std::shared_ptr<Transport>& transport, const Communicator& node,
               const RingOptions& options)
      : MessageGroup(transport, options),
        lanes_(smallest_node(*transport)),
        memory_(std::make_shared<NodeMemory>(node)),
        barrier_(make_common_memory(node, Barrier::bytes_for(node.size())), node.size(),
                 node.rank(),
                 {.own_cores = have_own_cores(node), .poll_group = [this] { receive_failure(); }}) {
    for (int lane = 0; lane < lanes_; ++lane) {
      std::vector<int> members;
      for (const auto& [number, all] : members_by_node(*transport))
        members.push_back(all[static_cast<std::size_t>(lane)]);
      std::ranges::sort(members);
      if (auto mine = transport->subset(members)) lane_ = std::move(mine);
    }
  }

  ~Hierarchical() override {
    if (failure() && lane_) lane_->abandon();
  }

  std::string route() const override { return "hierarchical"; }
  device::Buffer allocate(std::size_t bytes) override {
    return collective().buffers().keep(NodeMemory::allocate(memory_, bytes));
  }

 protected:
  void run_all_reduce(const Values& values, ReduceOp op) override {
    // Members read each other's values, so they first check that all calls match.
    compare(Call::all_reduce(values, op));
    if (memory_->place_of(values.data, bytes_of(values)).segment != 0) {
      reduce_in_levels(values, op);
    } else {
      const Values shared = shared_copy(values);
      reduce_in_levels(shared, op);
      std::memcpy(values.data, shared.data, bytes_of(values));
    }
  }

  void publish_failure(const ErrorMessage& failure) override { barrier_.fail(failure); }

 private:
  // `values` are in shared memory. Only the rank itself reads its own slice, so the ring may change
  // it while other ranks still reduce their slices.
  void reduce_in_levels(const Values& values, ReduceOp op) {
    at_barrier(barrier_, [&] { direct_reduce_scatter(barrier_, *memory_, values, op, lanes_); });
    if (lane_) {
      const Slice slice = slice_of(values.count, values.type, lanes_, barrier_.member());
      const Values lane{values.data + slice.begin * bytes_per_element(values.type),
                        slice.end - slice.begin, values.type};
      run([&] { collective().start_ring(*lane_, lane, op, RingReduction::Part::all); });
    }
    at_barrier(barrier_, [&] { direct_gather(barrier_, *memory_, values, lanes_); });
  }

  Values shared_copy(const Values& values) {
    if (shared_.size() < bytes_of(values)) shared_ = allocate(bytes_of(values));
    std::memcpy(shared_.data(), values.data, bytes_of(values));
    return {static_cast<std::byte*>(shared_.data()), values.count, values.type};
  }

  int lanes_;
  std::shared_ptr<NodeMemory> memory_;
  Barrier barrier_;
  std::shared_ptr<Transport> lane_;  // one rank of each node; null for a rank without a lane
  device::Buffer shared_;            // for values that are not in shared memory
};

}  // namespace

std::shared_ptr<MessageGroup> make_hierarchical(std::shared_ptr<Transport> transport,
                                                const Communicator& node,
                                                const RingOptions& options) {
  return std::make_shared<Hierarchical>(transport, node, options);
}

}  // namespace lockstep::inline v0::allreduce
