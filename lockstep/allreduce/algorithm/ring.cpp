#include "lockstep/allreduce/algorithm/ring.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

class Ring final : public MpiGroup {
 public:
  Ring(MPI_Comm ranks, const RingOptions& options)
      : MpiGroup(ranks, options.small_bytes), options_(options) {
    LOCKSTEP_CHECK_OP(options.segment_bytes % 64, ==, 0U);
    LOCKSTEP_CHECK_OP(options.segment_bytes, >, 0U);
    LOCKSTEP_CHECK_OP(options.segments_in_flight, >, 0U);
  }

  std::string route() const override { return "ring"; }
  device::Buffer allocate(std::size_t bytes) override {
    return buffers_.keep(MpiGroup::allocate(bytes));
  }

 protected:
  void run_all_reduce(const Values& values, ReduceOp op) override {
    announce(Call::all_reduce(values, op));
    run_ring(values, op, RingReduction::Part::all);
  }

  void run_reduce_scatter(const Values& values, ReduceOp op) override {
    announce(Call::reduce_scatter(values, op));
    run_ring(values, op, RingReduction::Part::reduce_scatter);
  }

  void run_gather_slices(const Values& values) override {
    announce(Call::gather_slices(values));
    run_ring(values, ReduceOp::sum, RingReduction::Part::all_gather);
  }

 private:
  void run_ring(const Values& values, ReduceOp op, RingReduction::Part part) {
    RingReduction reduction(comm(), values, op, part, options_, buffers_);
    run_checked(reduction);
  }

  RingOptions options_;
  MessageBuffers buffers_;
};

}  // namespace

std::shared_ptr<MpiGroup> make_ring(MPI_Comm ranks, const RingOptions& options) {
  return std::make_shared<Ring>(ranks, options);
}

}  // namespace lockstep::inline v0::allreduce
