#include "allreduce/routes/ring.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "device/error.h"

namespace lockstep::allreduce {
namespace {

constexpr int kTag = 1;
constexpr std::size_t kInFlight = 4;  // segments, each way

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// One all-reduce under way. Its slots are numbered in the order in which they travel: slot t is segment t % segments_
// of the chunk of step t / segments_. What is received in slot t is sent on in slot t + segments_.
class RingReduction {
 public:
  RingReduction(MPI_Comm comm, int rank, int size, const Values& values, ReduceOp op, std::size_t segment_bytes,
                std::byte* scratch)
      : comm_(comm),
        rank_(rank),
        size_(size),
        values_(values),
        op_(op),
        scratch_(scratch),
        segment_bytes_(segment_bytes) {
    std::size_t largest = 0;
    for (int chunk = 0; chunk < size; ++chunk) {
      const Slice slice = slice_of(values.count, values.type, size, chunk);
      largest = std::max(largest, slice.end - slice.begin);
    }
    segments_ = std::max<std::size_t>(1, (largest + segment_elements() - 1) / segment_elements());
    reduce_slots_ = static_cast<std::size_t>(size - 1) * segments_;
    slots_ = 2 * reduce_slots_;
  }

  // Does what can be done without waiting; true if there was anything.
  bool advance() {
    const std::size_t before = sends_done_ + sends_posted_ + receives_done_ + receives_posted_;
    while (sends_done_ < sends_posted_ && is_complete(sends_[sends_done_])) ++sends_done_;
    while (may_receive()) post_receive();
    if (receives_done_ < receives_posted_ && is_complete(receives_[receives_done_])) take_received();
    while (may_send()) post_send();
    return sends_done_ + sends_posted_ + receives_done_ + receives_posted_ != before;
  }

  bool is_done() const { return status_ != MPI_SUCCESS || (sends_done_ == slots_ && receives_done_ == slots_); }
  // The first error of MPI, if any.
  int status() const { return status_; }

 private:
  std::size_t segment_elements() const { return segment_bytes_ / bytes_per_element(values_.type); }

  // In step s a rank sends chunk rank - s and receives chunk rank - s - 1, counted round the ring.
  Slice segment_of(std::size_t slot, int chunks_behind) const {
    const int step = static_cast<int>(slot / segments_) + chunks_behind;
    const int chunk = ((rank_ - step) % size_ + size_) % size_;
    const Slice slice = slice_of(values_.count, values_.type, size_, chunk);
    const std::size_t begin = std::min(slice.end, slice.begin + slot % segments_ * segment_elements());
    return {begin, std::min(slice.end, begin + segment_elements())};
  }
  Slice sent_in(std::size_t slot) const { return segment_of(slot, 0); }
  Slice received_in(std::size_t slot) const { return segment_of(slot, 1); }

  std::byte* at(std::size_t element) const { return values_.data + element * bytes_per_element(values_.type); }
  int bytes_of(Slice slice) const {
    return static_cast<int>((slice.end - slice.begin) * bytes_per_element(values_.type));
  }
  std::byte* scratch_of(std::size_t slot) const { return scratch_ + slot % kInFlight * segment_bytes_; }
  bool is_reduced(std::size_t slot) const { return slot < reduce_slots_; }

  bool may_receive() const {
    if (status_ != MPI_SUCCESS || receives_posted_ == slots_ || receives_posted_ - receives_done_ == kInFlight)
      return false;
    // A complete segment goes to where its incomplete form was sent from, n - 1 steps ago: that must have left.
    return is_reduced(receives_posted_) || sends_done_ > receives_posted_ - reduce_slots_;
  }

  bool may_send() const {
    if (status_ != MPI_SUCCESS || sends_posted_ == slots_ || sends_posted_ - sends_done_ == kInFlight) return false;
    return sends_posted_ < segments_ || receives_done_ > sends_posted_ - segments_;
  }

  // Both ends know which segments are empty, and pass no message for them.
  void post_receive() {
    const std::size_t slot = receives_posted_++;
    const Slice slice = received_in(slot);
    if (slice.begin == slice.end) return;
    std::byte* to = is_reduced(slot) ? scratch_of(slot) : at(slice.begin);
    keep(MPI_Irecv(to, bytes_of(slice), MPI_BYTE, (rank_ + size_ - 1) % size_, kTag, comm_, &receives_[slot]));
  }

  void post_send() {
    const std::size_t slot = sends_posted_++;
    const Slice slice = sent_in(slot);
    if (slice.begin == slice.end) return;
    keep(MPI_Isend(at(slice.begin), bytes_of(slice), MPI_BYTE, (rank_ + 1) % size_, kTag, comm_, &sends_[slot]));
  }

  void take_received() {
    const std::size_t slot = receives_done_++;
    if (!is_reduced(slot)) return;
    const Slice slice = received_in(slot);
    reduce_into(at(slice.begin), scratch_of(slot), slice.end - slice.begin, values_.type, op_);
  }

  bool is_complete(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return true;
    int complete = 0;
    keep(MPI_Test(&request, &complete, MPI_STATUS_IGNORE));
    return complete != 0 && status_ == MPI_SUCCESS;
  }

  void keep(int status) {
    if (status_ == MPI_SUCCESS) status_ = status;
  }

  MPI_Comm comm_;
  int rank_;
  int size_;
  Values values_;
  ReduceOp op_;
  std::byte* scratch_;
  std::size_t segment_bytes_;
  std::size_t segments_ = 0;      // of the largest chunk
  std::size_t reduce_slots_ = 0;  // slots of the reduce-scatter; as many of the all-gather follow
  std::size_t slots_ = 0;
  std::size_t receives_posted_ = 0;
  std::size_t receives_done_ = 0;
  std::size_t sends_posted_ = 0;
  std::size_t sends_done_ = 0;
  int status_ = MPI_SUCCESS;
  PendingRequests receives_{kInFlight};
  PendingRequests sends_{kInFlight};
};

class Ring final : public MpiGroup {
 public:
  Ring(MPI_Comm ranks, const RingOptions& options) : MpiGroup(ranks), options_(options) {
    LOCKSTEP_CHECK_OP(options.segment_bytes % 64, ==, 0U);
    LOCKSTEP_CHECK_OP(options.segment_bytes, >, 0U);
  }

  std::string route() const override { return "ring"; }

  std::unique_ptr<Request::Impl> all_reduce(const Values& values, ReduceOp op) override {
    announce(Call::all_reduce(values, op));
    const std::size_t bytes = values.count * bytes_per_element(values.type);
    if (bytes * static_cast<std::size_t>(size()) <= options_.gather_bytes) {
      agree();
      gather_and_reduce(values, op, bytes);
    } else {
      reduce_around(values, op);
    }
    return nullptr;
  }

 private:
  void gather_and_reduce(const Values& values, ReduceOp op, std::size_t bytes) {
    if (bytes == 0) return;
    std::byte* gathered = scratch(bytes * static_cast<std::size_t>(size()));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(values.data, static_cast<int>(bytes), MPI_BYTE, gathered, static_cast<int>(bytes), MPI_BYTE,
                         comm(), &request),
          "MPI_Iallgather");
    wait(request);
    std::vector<std::byte*> members;
    for (int rank = 0; rank < size(); ++rank) members.push_back(gathered + static_cast<std::size_t>(rank) * bytes);
    reduce_slice(members, {0, values.count}, values.type, op, ResultGoesTo::first_member);
    std::memcpy(values.data, gathered, bytes);
  }

  // The data moves while the calls are compared. Where they differ the ring comes to a halt or to an error of MPI, and
  // the comparison says why.
  void reduce_around(const Values& values, ReduceOp op) {
    RingReduction reduction(comm(), rank(), size(), values, op, options_.segment_bytes,
                            scratch(kInFlight * options_.segment_bytes));
    wait_until_done([&] {
      agreed();
      const bool moved = reduction.advance();
      if (reduction.is_done()) return Progress::done;
      return moved ? Progress::some : Progress::none;
    });
    agree();
    check(reduction.status(), "a message of the ring");
  }

  std::byte* scratch(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_ = allocate(round_up(bytes, 64));
    return static_cast<std::byte*>(scratch_.data());
  }

  RingOptions options_;
  device::Buffer scratch_;
};

}  // namespace

std::shared_ptr<MpiGroup> make_ring(MPI_Comm ranks, const RingOptions& options) {
  return std::make_shared<Ring>(ranks, options);
}

}  // namespace lockstep::allreduce
