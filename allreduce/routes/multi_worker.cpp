#include "allreduce/routes/multi_worker.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "allreduce/routes/meeting.h"
#include "device/error.h"

namespace lockstep::allreduce {
namespace {

// What the replicas of one rank share.
struct Worker {
  Worker(std::shared_ptr<MpiGroup> between_ranks, std::vector<int> first, int replicas, int all_replicas)
      : between(std::move(between_ranks)),
        first_of_rank(std::move(first)),
        size(all_replicas),
        meeting(replicas, first_of_rank[static_cast<std::size_t>(between->rank())]) {}

  std::shared_ptr<MpiGroup> between;  // called by the leader alone
  std::vector<int> first_of_rank;     // the number of each rank's first replica
  int size;
  Meeting meeting;
  // Written by the leader while the others wait, read by them before they meet again.
  bool any = false;
  std::vector<std::vector<std::byte>> gathered;
};

// Buffers of one rank's replicas as one: their number, their sizes, then their bytes.
std::vector<std::byte> pack(const Meeting::Table& table) {
  std::vector<std::byte> packed;
  const auto append = [&](const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    packed.insert(packed.end(), begin, begin + bytes);
  };
  for (const Call& call : table.calls) append(&call.count, sizeof(call.count));
  for (std::size_t member = 0; member < table.calls.size(); ++member)
    append(table.data[member], table.calls[member].count);
  return packed;
}

void unpack(const std::vector<std::byte>& packed, std::size_t replicas, std::vector<std::vector<std::byte>>& into) {
  std::vector<std::uint64_t> sizes(replicas);
  std::memcpy(sizes.data(), packed.data(), replicas * sizeof(std::uint64_t));
  auto begin = packed.begin() + static_cast<std::ptrdiff_t>(replicas * sizeof(std::uint64_t));
  for (const std::uint64_t size : sizes) {
    into.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    begin += static_cast<std::ptrdiff_t>(size);
  }
}

class MultiWorker final : public Communicator::Impl {
 public:
  MultiWorker(std::shared_ptr<Worker> worker, int local) : worker_(std::move(worker)), local_(local) {}

  int rank() const override { return first_of(worker_->between->rank()) + local_; }
  int size() const override { return worker_->size; }
  std::string route() const override { return "in-process + " + worker_->between->route(); }

  std::unique_ptr<Request::Impl> all_reduce(const Values& values, ReduceOp op) override {
    const Meeting::Table table = meet(Call::all_reduce(values, op), values.data);
    const Slice slice = slice_of(values.count, values.type, replicas(), local_);
    reduce_slice(table.data, slice, values.type, op, ResultGoesTo::first_member);
    wait();
    between_ranks([&](MpiGroup& group) { static_cast<void>(group.all_reduce(values, op)); });
    copy_from(table, 0, {values.data, values.count * bytes_per_element(values.type)});
    wait();
    return nullptr;
  }

  void broadcast(std::span<std::byte> values, int root) override {
    const Meeting::Table table = meet(Call::broadcast(values.size(), root), values.data());
    const int root_rank = rank_of(root);
    if (is_leader() && root_rank == worker_->between->rank()) copy_from(table, root - first_of(root_rank), values);
    between_ranks([&](MpiGroup& group) { group.broadcast(values, root_rank); });
    if (rank() != root) copy_from(table, 0, values);
    wait();
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    // The table holds addresses of buffers that operations write to; nobody writes to these.
    const Meeting::Table table = meet(Call::all_gather(mine.size()), const_cast<std::byte*>(mine.data()));
    between_ranks([&](MpiGroup& group) {
      const std::vector<std::vector<std::byte>> packed = group.all_gather(pack(table));
      worker_->gathered.clear();
      for (std::size_t rank = 0; rank < packed.size(); ++rank)
        unpack(packed[rank], replicas_of(static_cast<int>(rank)), worker_->gathered);
    });
    return worker_->gathered;
  }

  void barrier() override {
    meet(Call::barrier());
    between_ranks([](MpiGroup& group) { group.barrier(); });
  }

  bool any(bool mine) override {
    const Meeting::Table table = meet(Call::any(mine));
    between_ranks([&](MpiGroup& group) {
      worker_->any = group.any(std::ranges::any_of(table.calls, [](const Call& call) { return call.flag != 0; }));
    });
    return worker_->any;
  }

  // Another replica's failure reaches the other ranks when the leader next comes to an operation: it alone calls MPI.
  void fail(const Failure& failure) override {
    worker_->meeting.fail(failure);
    if (is_leader()) worker_->between->fail(failure);
  }

 private:
  bool is_leader() const { return local_ == 0; }
  int replicas() const { return worker_->meeting.size(); }
  int first_of(int rank) const { return worker_->first_of_rank[static_cast<std::size_t>(rank)]; }

  std::size_t replicas_of(int rank) const {
    const int end = rank + 1 < static_cast<int>(worker_->first_of_rank.size()) ? first_of(rank + 1) : worker_->size;
    return static_cast<std::size_t>(end - first_of(rank));
  }

  int rank_of(int replica) const {
    const auto after = std::ranges::upper_bound(worker_->first_of_rank, replica);
    return static_cast<int>(after - worker_->first_of_rank.begin()) - 1;
  }

  void copy_from(const Meeting::Table& table, int local, std::span<std::byte> values) const {
    if (local != local_ && !values.empty())
      std::memcpy(values.data(), table.data[static_cast<std::size_t>(local)], values.size());
  }

  Meeting::Table meet(const Call& call, std::byte* data = nullptr) {
    return telling_other_ranks([&] { return worker_->meeting.meet(local_, call, data); });
  }

  void wait() {
    telling_other_ranks([&] { worker_->meeting.wait(); });
  }

  // The replicas of the other ranks are still waiting for a worker whose own replicas have failed.
  template <typename Operation>
  auto telling_other_ranks(Operation operation) -> decltype(operation()) {
    try {
      return operation();
    } catch (const Error&) {
      if (is_leader()) worker_->between->fail(*worker_->meeting.failure());
      throw;
    }
  }

  // The leader runs `operation` while the other replicas of this rank wait for it.
  template <typename Operation>
  void between_ranks(Operation operation) {
    if (is_leader()) {
      try {
        operation(*worker_->between);
      } catch (const std::exception& error) {
        // A failure that the group between ranks does not know of, such as too little memory, is one of this rank
        // alone.
        fail(worker_->between->failure().value_or(Failure{
            "all_reduce", fmt::format("needed all ranks to go on, but rank {} failed", worker_->between->rank()),
            error.what()}));
        throw;
      }
    }
    wait();
  }

  std::shared_ptr<Worker> worker_;
  int local_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator::Impl>> make_multi_worker(std::shared_ptr<MpiGroup> between,
                                                                   const std::vector<int>& replicas_of_rank) {
  LOCKSTEP_CHECK_OP(replicas_of_rank.size(), ==, static_cast<std::size_t>(between->size()));
  std::vector<int> first(replicas_of_rank.size());
  std::exclusive_scan(replicas_of_rank.begin(), replicas_of_rank.end(), first.begin(), 0);
  const int size = first.back() + replicas_of_rank.back();
  const int replicas = replicas_of_rank[static_cast<std::size_t>(between->rank())];
  between->number_members(first);
  const auto worker = std::make_shared<Worker>(std::move(between), std::move(first), replicas, size);
  std::vector<std::shared_ptr<Communicator::Impl>> group;
  for (int local = 0; local < replicas; ++local) group.push_back(std::make_shared<MultiWorker>(worker, local));
  return group;
}

}  // namespace lockstep::allreduce
