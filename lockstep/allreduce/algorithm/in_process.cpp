#include "lockstep/allreduce/algorithm/in_process.h"

#include <algorithm>
#include <cstring>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/transport/barrier.h"

namespace lockstep::inline v0::allreduce {
namespace {

class InProcess final : public GroupMember {
 public:
  explicit InProcess(Barrier barrier) : barrier_(std::move(barrier)) {}

  int rank() const override { return barrier_.member(); }
  int size() const override { return barrier_.size(); }
  std::string route() const override { return "in-process"; }
  bool overlaps() const override { return false; }
  double seconds_waited() const override { return barrier_.seconds_waited(); }

  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) override {
    direct_all_reduce(barrier_, addresses_, values, op);
    return nullptr;
  }

  // Values must not change while another member still reads them.
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) override {
    direct_reduce_scatter(barrier_, addresses_, values, op, size());
    barrier_.wait();
    return nullptr;
  }

  std::unique_ptr<PendingOperation> gather_slices(const Values& values) override {
    direct_gather(barrier_, addresses_, values, size());
    return nullptr;
  }

  void broadcast(std::span<std::byte> values, int root) override {
    barrier_.exchange(Call::broadcast(values.size(), root),
                      addresses_.place_of(values.data(), values.size()));
    if (rank() != root && !values.empty())
      std::memcpy(values.data(), addresses_.at(root, barrier_.place(root)), values.size());
    barrier_.wait();
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    barrier_.exchange(Call::all_gather(mine.size()), addresses_.place_of(mine.data(), mine.size()));
    std::vector<std::vector<std::byte>> all;
    for (int member = 0; member < size(); ++member) {
      const std::byte* begin = addresses_.at(member, barrier_.place(member));
      all.emplace_back(begin, begin + barrier_.call(member).count);
    }
    barrier_.wait();
    return all;
  }

  void barrier() override { barrier_.exchange(Call::barrier()); }

  bool any(bool mine) override {
    barrier_.exchange(Call::any(mine));
    return any_flag(barrier_);
  }

  void fail(const ErrorMessage& failure) override { barrier_.fail(failure); }

  void throw_if_failed() override {
    if (const auto failure = barrier_.failure())
      throw Error(ErrorCategory::communication, *failure);
  }

 private:
  Barrier barrier_;
  ProcessAddresses addresses_;
};

}  // namespace

std::vector<std::shared_ptr<GroupMember>> make_in_process(int members) {
  std::vector<std::shared_ptr<GroupMember>> group;
  for (Barrier& barrier : make_barrier_of_threads(members))
    group.push_back(std::make_shared<InProcess>(std::move(barrier)));
  return group;
}

}  // namespace lockstep::inline v0::allreduce
