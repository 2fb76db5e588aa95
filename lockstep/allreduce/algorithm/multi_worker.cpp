#include "lockstep/allreduce/algorithm/multi_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/transport/barrier.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

// The state shared by the replicas of one rank.
struct Worker {
  std::shared_ptr<MessageGroup> between;  // used only by the leader
  std::vector<int> first_of_rank;         // the global number of each rank's first replica
  int size = 0;                           // number of replicas of all ranks
  // Written by the leader while the others wait; read by the others before the next barrier.
  bool any = false;
  std::vector<std::vector<std::byte>> gathered;
};

// Concatenates the buffers of one rank's replicas: sizes, then bytes.
std::vector<std::byte> pack(const Barrier& barrier, Addresses& addresses) {
  std::vector<std::byte> packed;
  const auto append = [&](const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    packed.insert(packed.end(), begin, begin + bytes);
  };
  for (int member = 0; member < barrier.size(); ++member)
    append(&barrier.call(member).count, sizeof(barrier.call(member).count));
  for (int member = 0; member < barrier.size(); ++member)
    append(addresses.at(member, barrier.place(member)), barrier.call(member).count);
  return packed;
}

void unpack(const std::vector<std::byte>& packed, std::size_t replicas,
            std::vector<std::vector<std::byte>>& into) {
  std::vector<std::uint64_t> sizes(replicas);
  std::memcpy(sizes.data(), packed.data(), replicas * sizeof(std::uint64_t));
  auto begin = packed.begin() + static_cast<std::ptrdiff_t>(replicas * sizeof(std::uint64_t));
  for (const std::uint64_t size : sizes) {
    into.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    begin += static_cast<std::ptrdiff_t>(size);
  }
}

class MultiWorker final : public GroupMember {
 public:
  MultiWorker(std::shared_ptr<Worker> worker, Barrier barrier)
      : worker_(std::move(worker)), barrier_(std::move(barrier)) {}

  int rank() const override { return first_of(worker_->between->rank()) + barrier_.member(); }
  int size() const override { return worker_->size; }
  std::string route() const override { return "in-process + " + worker_->between->route(); }

  bool overlaps() const override { return worker_->between->overlaps(); }
  double seconds_waited() const override { return barrier_.seconds_waited(); }

  device::Buffer allocate(std::size_t bytes) override {
    return is_leader() ? worker_->between->allocate(bytes) : GroupMember::allocate(bytes);
  }

  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) override {
    exchange(Call::all_reduce(values, op), values.data);
    const std::vector<const std::byte*> sources(buffers_.begin(), buffers_.end());
    reduce_slice(sources, std::array{buffers_[0]},
                 slice_of(values.count, values.type, barrier_.size(), barrier_.member()),
                 values.type, op);
    wait();
    between_ranks([&](MessageGroup& group) { static_cast<void>(group.all_reduce(values, op)); });
    copy_from(0, whole(values));
    wait();
    return nullptr;
  }

  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) override {
    return all_reduce(values, op);
  }

  std::unique_ptr<PendingOperation> gather_slices(const Values& values) override {
    exchange(Call::gather_slices(values), values.data);
    // The leader first collects the slices of its rank; then every rank broadcasts its part.
    if (is_leader())
      for (int local = 1; local < barrier_.size(); ++local)
        copy_from(local, range_of(values, first_of(worker_->between->rank()) + local, 1));
    between_ranks([&](MessageGroup& group) {
      for (int rank = 0; rank < group.size(); ++rank)
        group.broadcast(range_of(values, first_of(rank), static_cast<int>(replicas_of(rank))),
                        rank);
    });
    copy_from(0, whole(values));
    wait();
    return nullptr;
  }

  void broadcast(std::span<std::byte> values, int root) override {
    exchange(Call::broadcast(values.size(), root), values.data());
    const int root_rank = rank_of(root);
    if (is_leader() && root_rank == worker_->between->rank())
      copy_from(root - first_of(root_rank), values);
    between_ranks([&](MessageGroup& group) { group.broadcast(values, root_rank); });
    if (rank() != root) copy_from(0, values);
    wait();
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    exchange(Call::all_gather(mine.size()), mine.data());
    between_ranks([&](MessageGroup& group) {
      const std::vector<std::vector<std::byte>> packed =
          group.all_gather(pack(barrier_, addresses_));
      worker_->gathered.clear();
      for (std::size_t rank = 0; rank < packed.size(); ++rank)
        unpack(packed[rank], replicas_of(static_cast<int>(rank)), worker_->gathered);
    });
    return worker_->gathered;
  }

  void barrier() override {
    exchange(Call::barrier());
    between_ranks([](MessageGroup& group) { group.barrier(); });
  }

  bool any(bool mine) override {
    exchange(Call::any(mine));
    between_ranks([&](MessageGroup& group) { worker_->any = group.any(any_flag(barrier_)); });
    return worker_->any;
  }

  // Only the leader calls MPI, so the failure of another replica reaches the other ranks at the
  // leader's next operation.
  void fail(const ErrorMessage& failure) override {
    barrier_.fail(failure);
    if (is_leader()) worker_->between->fail(failure);
  }

  void throw_if_failed() override {
    if (const auto failure = barrier_.failure()) {
      if (is_leader()) worker_->between->fail(*failure);
      throw Error(ErrorCategory::communication, *failure);
    }
    if (!is_leader()) return;
    try {
      worker_->between->throw_if_failed();
    } catch (const Error&) {
      barrier_.fail(*worker_->between->failure());
      throw;
    }
  }

 private:
  bool is_leader() const { return barrier_.member() == 0; }
  int first_of(int rank) const { return worker_->first_of_rank[rank]; }

  std::size_t replicas_of(int rank) const {
    const int end = rank + 1 < static_cast<int>(worker_->first_of_rank.size()) ? first_of(rank + 1)
                                                                               : worker_->size;
    return static_cast<std::size_t>(end - first_of(rank));
  }

  int rank_of(int replica) const {
    const auto after = std::ranges::upper_bound(worker_->first_of_rank, replica);
    return static_cast<int>(after - worker_->first_of_rank.begin()) - 1;
  }

  static std::span<std::byte> whole(const Values& values) {
    return {values.data, bytes_of(values)};
  }

  // The contiguous slices of `replicas` replicas from `first`.
  std::span<std::byte> range_of(const Values& values, int first, int replicas) const {
    const std::size_t begin = slice_of(values.count, values.type, size(), first).begin;
    const std::size_t end = slice_of(values.count, values.type, size(), first + replicas - 1).end;
    const std::size_t width = bytes_per_element(values.type);
    return whole(values).subspan(begin * width, (end - begin) * width);
  }

  // Copies a range of another local replica's values to the same range of this replica's values.
  void copy_from(int local, std::span<std::byte> range) {
    if (local == barrier_.member() || range.empty()) return;
    const std::ptrdiff_t offset = range.data() - buffers_[barrier_.member()];
    std::memcpy(range.data(), buffers_[local] + offset, range.size());
  }

  void exchange(const Call& call, const std::byte* data = nullptr) {
    forwarding_failures([&] { barrier_.exchange(call, addresses_.place_of(data, 0)); });
    buffers_ = buffers_of_all(barrier_, addresses_);
  }

  void wait() {
    forwarding_failures([&] { barrier_.wait(); });
  }

  // After a failure within this rank the other ranks are still waiting for it, so the leader
  // reports the failure.
  template <typename Operation>
  auto forwarding_failures(Operation operation) -> decltype(operation()) {
    try {
      return operation();
    } catch (const Error& error) {
      // Another replica may still be writing the failure that all share.
      if (is_leader()) worker_->between->fail(barrier_.failure().value_or(error.message()));
      throw;
    }
  }

  // The leader runs `operation` while the other replicas of this rank wait.
  template <typename Operation>
  void between_ranks(Operation operation) {
    if (is_leader()) {
      try {
        operation(*worker_->between);
      } catch (const std::exception& error) {
        // A failure unknown to the group between ranks, such as out of memory, is local to this
        // rank.
        fail(worker_->between->failure().value_or(
            ErrorMessage{"all_reduce",
                         fmt::format("expected all ranks to continue, but rank {} failed",
                                     worker_->between->rank()),
                         error.what()}));
        throw;
      }
    }
    wait();
  }

  std::shared_ptr<Worker> worker_;
  Barrier barrier_;
  ProcessAddresses addresses_;
  std::vector<std::byte*> buffers_;  // the buffer of each local replica in this operation
};

}  // namespace

std::vector<std::shared_ptr<GroupMember>> make_multi_worker(
    std::shared_ptr<MessageGroup> between, const std::vector<int>& replicas_of_rank) {
  LOCKSTEP_CHECK_OP(replicas_of_rank.size(), ==, static_cast<std::size_t>(between->size()));
  std::vector<int> first(replicas_of_rank.size());
  std::exclusive_scan(replicas_of_rank.begin(), replicas_of_rank.end(), first.begin(), 0);
  const int size = first.back() + replicas_of_rank.back();
  const int replicas = replicas_of_rank[between->rank()];
  between->set_member_numbers(first);
  const int first_here = first[between->rank()];
  const auto worker = std::make_shared<Worker>();
  worker->between = std::move(between);
  worker->first_of_rank = std::move(first);
  worker->size = size;
  std::vector<std::shared_ptr<GroupMember>> group;
  for (Barrier& barrier : make_barrier_of_threads(replicas, first_here))
    group.push_back(std::make_shared<MultiWorker>(worker, std::move(barrier)));
  return group;
}

}  // namespace lockstep::inline v0::allreduce
