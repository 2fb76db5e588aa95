#include "lockstep/allreduce/algorithm/shared_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/algorithm/node_memory.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

// Values outside shared memory are copied through it in pieces that fit into the cache.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10;

class SharedMemory final : public MessageGroup {
 public:
  SharedMemory(std::shared_ptr<Transport> transport, const Communicator& ranks)
      : MessageGroup(std::move(transport), {.small_bytes = 0}),
        memory_(std::make_shared<NodeMemory>(ranks)),
        barrier_(
            make_common_memory(ranks, Barrier::bytes_for(size())), size(), rank(),
            {.own_cores = have_own_cores(ranks), .poll_group = [this] { receive_failure(); }}) {}

  void set_member_numbers(std::vector<int> numbers) override {
    barrier_.set_member_numbers(numbers);
    MessageGroup::set_member_numbers(std::move(numbers));
  }

  std::string route() const override { return "shared-memory"; }
  bool overlaps() const override { return false; }
  double seconds_waited() const override { return barrier_.seconds_waited(); }
  device::Buffer allocate(std::size_t bytes) override {
    return NodeMemory::allocate(memory_, bytes);
  }

 protected:
  void run_all_reduce(const Values& values, ReduceOp op) override {
    at_barrier(barrier_, [&] {
      if (bytes_of(values) <= Barrier::kNoteBytes) return reduce_notes(barrier_, values, op);
      barrier_.exchange(Call::all_reduce(values, op),
                        memory_->place_of(values.data, bytes_of(values)));
      if (all_are_shared())
        direct_all_reduce_arrived(barrier_, *memory_, values, op);
      else
        reduce_in_pieces(values, op);
    });
  }

  void run_reduce_scatter(const Values& values, ReduceOp op) override {
    at_barrier(barrier_, [&] {
      with_shared(Call::reduce_scatter(values, op), values, [&](const Values& shared) {
        direct_reduce_scatter(barrier_, *memory_, shared, op, size());
        barrier_.wait();
      });
    });
  }

  void run_gather_slices(const Values& values) override {
    at_barrier(barrier_, [&] {
      with_shared(Call::gather_slices(values), values,
                  [&](const Values& shared) { direct_gather(barrier_, *memory_, shared, size()); });
    });
  }

  const std::vector<Call>& compare(const Call& call) override {
    at_barrier(barrier_, [&] { barrier_.exchange(call); });
    calls_.clear();
    for (int member = 0; member < size(); ++member) calls_.push_back(barrier_.call(member));
    return calls_;
  }

  void publish_failure(const ErrorMessage& failure) override { barrier_.fail(failure); }

 private:
  bool all_are_shared() const {
    for (int member = 0; member < size(); ++member)
      if (barrier_.place(member).segment == 0) return false;
    return true;
  }

  void reduce_in_pieces(const Values& values, ReduceOp op) {
    const std::size_t width = bytes_per_element(values.type);
    const std::size_t piece = kPieceBytes / width;
    for (std::size_t begin = 0; begin < values.count; begin += piece) {
      const Values part{values.data + begin * width, std::min(piece, values.count - begin),
                        values.type};
      via_shared(part,
                 [&](const Values& shared) { direct_all_reduce(barrier_, *memory_, shared, op); });
    }
  }

  // Each member decides for its own values: not all members need to have them in shared memory.
  template <typename Operation>
  void with_shared(const Call& call, const Values& values, Operation operation) {
    barrier_.exchange(call);
    via_shared(values, operation);
  }

  template <typename Operation>
  void via_shared(const Values& values, Operation operation) {
    if (memory_->place_of(values.data, bytes_of(values)).segment != 0) return operation(values);
    if (scratch_.size() < bytes_of(values)) scratch_ = allocate(bytes_of(values));
    const Values shared{static_cast<std::byte*>(scratch_.data()), values.count, values.type};
    if (values.count > 0) std::memcpy(shared.data, values.data, bytes_of(values));
    operation(shared);
    if (values.count > 0) std::memcpy(values.data, shared.data, bytes_of(values));
  }

  std::shared_ptr<NodeMemory> memory_;
  Barrier barrier_;
  device::Buffer scratch_;
  std::vector<Call> calls_;
};

}  // namespace

std::shared_ptr<MessageGroup> make_shared_memory(std::shared_ptr<Transport> transport,
                                                 const Communicator& ranks) {
  return std::make_shared<SharedMemory>(std::move(transport), ranks);
}

}  // namespace lockstep::inline v0::allreduce
