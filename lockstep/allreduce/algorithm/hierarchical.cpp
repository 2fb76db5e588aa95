#include "lockstep/allreduce/algorithm/hierarchical.h"

#include <cstring>
#include <mutex>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/algorithm/node_memory.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

int smallest_node(MPI_Comm ranks, MPI_Comm node) {
  int lanes = size_of(node);
  MPI_Allreduce(MPI_IN_PLACE, &lanes, 1, MPI_INT, MPI_MIN, ranks);
  return lanes;
}

class Hierarchical final : public MpiGroup {
 public:
  Hierarchical(MPI_Comm ranks, MPI_Comm node, const RingOptions& options)
      : MpiGroup(ranks, options.small_bytes),
        options_(options),
        lanes_(smallest_node(ranks, node)),
        memory_(std::make_shared<NodeMemory>(node)),
        barrier_(make_common_memory(node, Barrier::bytes_for(size_of(node))), size_of(node),
                 rank_in(node),
                 {.own_cores = have_own_cores(node), .poll_group = [this] { receive_failure(); }}) {
    const int lane = barrier_.member() < lanes_ ? barrier_.member() : MPI_UNDEFINED;
    MPI_Comm_split(comm(), lane, rank(), &lane_);
    if (lane_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(lane_, MPI_ERRORS_RETURN);
  }

  ~Hierarchical() override {
    if (lane_ == MPI_COMM_NULL || !is_usable()) return;
    const std::lock_guard turn(mpi_turn());
    MPI_Comm_free(&lane_);
  }

  std::string route() const override { return "hierarchical"; }
  device::Buffer allocate(std::size_t bytes) override {
    return buffers_.keep(NodeMemory::allocate(memory_, bytes));
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

  void run_reduce_scatter(const Values& values, ReduceOp op) override {
    announce(Call::reduce_scatter(values, op));
    run_ring(comm(), values, op, RingReduction::Part::reduce_scatter);
  }

  void run_gather_slices(const Values& values) override {
    announce(Call::gather_slices(values));
    run_ring(comm(), values, ReduceOp::sum, RingReduction::Part::all_gather);
  }

  void publish_failure(const ErrorMessage& failure) override { barrier_.fail(failure); }

 private:
  // `values` are in shared memory. Only the rank itself reads its own slice, so the ring may change
  // it while other ranks still reduce their slices.
  void reduce_in_levels(const Values& values, ReduceOp op) {
    at_barrier(barrier_, [&] { direct_reduce_scatter(barrier_, *memory_, values, op, lanes_); });
    if (lane_ != MPI_COMM_NULL) {
      const Slice slice = slice_of(values.count, values.type, lanes_, barrier_.member());
      const Values lane{values.data + slice.begin * bytes_per_element(values.type),
                        slice.end - slice.begin, values.type};
      run_ring(lane_, lane, op, RingReduction::Part::all);
    }
    at_barrier(barrier_, [&] { direct_gather(barrier_, *memory_, values, lanes_); });
  }

  void run_ring(MPI_Comm ring, const Values& values, ReduceOp op, RingReduction::Part part) {
    RingReduction reduction(ring, values, op, part, options_, buffers_);
    run_checked(reduction);
  }

  Values shared_copy(const Values& values) {
    if (shared_.size() < bytes_of(values)) shared_ = allocate(bytes_of(values));
    std::memcpy(shared_.data(), values.data, bytes_of(values));
    return {static_cast<std::byte*>(shared_.data()), values.count, values.type};
  }

  RingOptions options_;
  int lanes_;
  std::shared_ptr<NodeMemory> memory_;
  Barrier barrier_;
  MPI_Comm lane_ = MPI_COMM_NULL;  // one rank of each node; null for a rank without a lane
  device::Buffer shared_;          // for values that are not in shared memory
  MessageBuffers buffers_;
};

}  // namespace

std::shared_ptr<MpiGroup> make_hierarchical(MPI_Comm ranks, MPI_Comm node,
                                            const RingOptions& options) {
  return std::make_shared<Hierarchical>(ranks, node, options);
}

}  // namespace lockstep::inline v0::allreduce
