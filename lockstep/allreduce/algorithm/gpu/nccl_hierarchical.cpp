#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/algorithm/gpu/nccl_member.h"
#include "lockstep/allreduce/algorithm/ring_reduction.h"
#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/allreduce/transport/mpi.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"
#include "lockstep/device/gpu.h"

namespace lockstep::allreduce {
namespace {

// Values up to this size are reduced by the host without segments.
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
constexpr std::size_t kRingSegmentBytes = std::size_t{256} << 10;

// This rank's lane: its index in its node, and the ranks of other nodes with the same index.
// Collective over `ranks` and `node`.
class Lane {
 public:
  Lane(MPI_Comm ranks, MPI_Comm node) : count_(size_of(node)), own_(rank_in(node)) {
    MPI_Allreduce(MPI_IN_PLACE, &count_, 1, MPI_INT, MPI_MIN, ranks);
    MPI_Comm_split(ranks, exists() ? own_ : MPI_UNDEFINED, rank_in(ranks), &across_);
    if (exists()) MPI_Comm_set_errhandler(across_, MPI_ERRORS_RETURN);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() {
    int mpi_is_over = 0;
    MPI_Finalized(&mpi_is_over);
    if (frees_ && exists() && mpi_is_over == 0) MPI_Comm_free(&across_);
  }

  int count() const { return count_; }  // lanes per node
  int own() const { return own_; }
  bool exists() const { return own_ < count_; }
  MPI_Comm across() const { return across_; }
  // MPI_Comm_free is collective, so it may hang after a failure.
  void leave_to_mpi() { frees_ = false; }

 private:
  int count_;
  int own_;
  MPI_Comm across_ = MPI_COMM_NULL;
  bool frees_ = true;
};

class NcclHierarchical final : public NcclMember {
 public:
  NcclHierarchical(const std::shared_ptr<MpiGroup>& host, device::Device gpu,
                   std::shared_ptr<NcclCommunicators> node, std::unique_ptr<Lane> lane,
                   std::size_t segment_bytes)
      : NcclMember(host, gpu, std::move(node), 0),
        ranks_(host),
        lane_(std::move(lane)),
        segment_bytes_(segment_bytes) {
    LOCKSTEP_CHECK_OP(segment_bytes % 64, ==, 0U);
    LOCKSTEP_CHECK_OP(segment_bytes, >, 0U);
    const std::unique_ptr<device::Allocator> pinned = device::make_pinned_allocator();
    // A part may be one cache line longer than the average.
    const std::size_t slot_bytes = segment_bytes / static_cast<std::size_t>(lane_->count()) + 64;
    for (device::Buffer& slot : slots_) slot = ring_buffers_.keep(pinned->allocate(slot_bytes));
  }

  ~NcclHierarchical() override {
    if (ranks_->failure()) lane_->leave_to_mpi();
  }

  std::string route() const override { return "nccl + ring"; }
  bool moves_on_host() const override { return true; }

 protected:
  void enqueue_all_reduce(const Values& values, ReduceOp op) override {
    if (bytes_of(values) <= kSmallBytes)
      return by_way_of_host(values.data, bytes_of(values), [&](std::byte* staged) {
        static_cast<void>(host().all_reduce({staged, values.count, values.type}, op));
      });
    for (const SegmentStep& step : schedule_segments(segments_of(values, segment_bytes_))) {
      const Values segment = segment_of(values, segment_bytes_, step.segment);
      switch (step.stage) {
        case SegmentStage::down:
          bring_down(segment, op, step.slot);
          break;
        case SegmentStage::across:
          bring_across(segment, op, step.slot);
          break;
        case SegmentStage::up:
          bring_up(segment, step.slot);
          break;
      }
    }
  }

  // The slices of members do not match the lanes, so all values are reduced.
  void enqueue_reduce_scatter(const Values& values, ReduceOp op) override {
    enqueue_all_reduce(values, op);
  }

  void enqueue_gather_slices(const Values& values) override {
    by_way_of_host(values.data, bytes_of(values), [&](std::byte* staged) {
      static_cast<void>(host().gather_slices({staged, values.count, values.type}));
    });
  }

  void enqueue_broadcast(std::span<std::byte> values, int root) override {
    by_way_of_host(values.data(), values.size(), [&](std::byte* staged) {
      host().broadcast({staged, values.size()}, root);
    });
  }

 private:
  std::byte* slot(std::size_t index) const { return static_cast<std::byte*>(slots_[index].data()); }

  Values part_of(const Values& segment, int lane) const {
    const Slice slice = slice_of(segment.count, segment.type, lane_->count(), lane);
    return {segment.data + slice.begin * bytes_per_element(segment.type), slice.end - slice.begin,
            segment.type};
  }

  // Calls `operation(comm, lane, part)` for the part of each lane as one NCCL group operation.
  template <typename Operation>
  void for_each_lane(std::string_view what, const Values& segment, Operation operation) {
    run_nccl(what, [&](ncclComm_t comm) {
      return as_one_nccl_operation(lane_->count(), [&](int lane) {
        const Values part = part_of(segment, lane);
        return part.count == 0 ? ncclSuccess : operation(comm, lane, part);
      });
    });
  }

  void bring_down(const Values& segment, ReduceOp op, std::size_t index) {
    for_each_lane("ncclReduce", segment, [&](ncclComm_t comm, int lane, const Values& part) {
      return ncclReduce(part.data, part.data, part.count, nccl_type(part.type), nccl_operation(op),
                        lane, comm, device::cuda::native(stream()));
    });
    if (!lane_->exists()) return;
    const Values mine = part_of(segment, lane_->own());
    gpu::copy(mine.data, slot(index), bytes_of(mine), stream());
    down_[index] = stream().record();
  }

  void bring_across(const Values& segment, ReduceOp op, std::size_t index) {
    if (!lane_->exists()) return;
    wait_for(*down_[index]);
    const Values mine = part_of(segment, lane_->own());
    RingReduction reduction(lane_->across(), {slot(index), mine.count, mine.type}, op,
                            RingReduction::Part::all, kRingSegmentBytes, ring_buffers_);
    ranks_->carry(reduction);
  }

  void bring_up(const Values& segment, std::size_t index) {
    if (lane_->exists()) {
      const Values mine = part_of(segment, lane_->own());
      gpu::copy(slot(index), mine.data, bytes_of(mine), stream());
    }
    for_each_lane("ncclBroadcast", segment, [&](ncclComm_t comm, int lane, const Values& part) {
      return ncclBroadcast(part.data, part.data, part.count, nccl_type(part.type), lane, comm,
                           device::cuda::native(stream()));
    });
  }

  template <typename Operation>
  void by_way_of_host(std::byte* data, std::size_t bytes, Operation operation) {
    if (staged_.size() < bytes) {
      stream().synchronize();
      staged_ = device::make_pinned_allocator()->allocate(bytes);
    }
    auto* staged = static_cast<std::byte*>(staged_.data());
    gpu::copy(data, staged, bytes, stream());
    wait_for(stream().record());
    operation(staged);
    gpu::copy(staged, data, bytes, stream());
  }

  std::shared_ptr<MpiGroup> ranks_;  // the host's group
  std::unique_ptr<Lane> lane_;
  std::size_t segment_bytes_;
  std::array<device::Buffer, kSegmentSlots> slots_;
  std::array<std::optional<device::Event>, kSegmentSlots> down_;
  device::Buffer staged_;
  MessageBuffers ring_buffers_;
};

}  // namespace

std::shared_ptr<GroupMember> make_nccl_hierarchical(const std::shared_ptr<MpiGroup>& host,
                                                    device::Device gpu, MPI_Comm ranks,
                                                    MPI_Comm node, const NcclOptions& options) {
  load_nccl(ranks);
  std::shared_ptr<NcclCommunicators> communicators;
  std::optional<ErrorMessage> problem;
  // Nodes do this independently, so it may fail on only some of them.
  try {
    communicators = NcclCommunicators::create(
        node, size_of(node), {{rank_in(node), gpu, host->rank()}}, options.join_limit);
  } catch (const Error& error) {
    problem = ErrorMessage{"nccl", "expected an NCCL group of the GPUs of each node", error.what()};
  }
  raise_first(ranks, problem);
  const auto member = std::make_shared<NcclHierarchical>(host, gpu, std::move(communicators),
                                                         std::make_unique<Lane>(ranks, node),
                                                         options.segment_bytes);
  return connected({member}).front();
}

}  // namespace lockstep::allreduce
