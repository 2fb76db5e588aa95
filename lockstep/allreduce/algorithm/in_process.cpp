#include "lockstep/allreduce/algorithm/in_process.h"

#include <algorithm>
#include <cstring>

#include "lockstep/allreduce/algorithm/direct.h"
#include "lockstep/allreduce/transport/barrier.h"

namespace lockstep::allreduce {
namespace {

class InProcess final : public GroupMember {
 public:
  explicit InProcess(Meeting meeting) : meeting_(std::move(meeting)) {}

  int rank() const override { return meeting_.member(); }
  int size() const override { return meeting_.size(); }
  std::string route() const override { return "in-process"; }
  bool overlaps() const override { return false; }
  double seconds_waited() const override { return meeting_.seconds_waited(); }

  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) override {
    direct_all_reduce(meeting_, addresses_, values, op);
    return nullptr;
  }

  // Nobody may touch the values while another member still reads them.
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) override {
    direct_reduce_scatter(meeting_, addresses_, values, op, size());
    meeting_.wait();
    return nullptr;
  }

  std::unique_ptr<PendingOperation> gather_slices(const Values& values) override {
    direct_gather(meeting_, addresses_, values, size());
    return nullptr;
  }

  void broadcast(std::span<std::byte> values, int root) override {
    meeting_.meet(Call::broadcast(values.size(), root), addresses_.place_of(values.data(), values.size()));
    if (rank() != root && !values.empty())
      std::memcpy(values.data(), addresses_.at(root, meeting_.place(root)), values.size());
    meeting_.wait();
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    meeting_.meet(Call::all_gather(mine.size()), addresses_.place_of(mine.data(), mine.size()));
    std::vector<std::vector<std::byte>> all;
    for (int member = 0; member < size(); ++member) {
      const std::byte* begin = addresses_.at(member, meeting_.place(member));
      all.emplace_back(begin, begin + meeting_.call(member).count);
    }
    meeting_.wait();
    return all;
  }

  void barrier() override { meeting_.meet(Call::barrier()); }

  bool any(bool mine) override {
    meeting_.meet(Call::any(mine));
    return any_flag(meeting_);
  }

  void fail(const Failure& failure) override { meeting_.fail(failure); }

  void throw_if_failed() override {
    if (const auto failure = meeting_.failure()) failure->raise();
  }

 private:
  Meeting meeting_;
  ProcessAddresses addresses_;
};

}  // namespace

std::vector<std::shared_ptr<GroupMember>> make_in_process(int members) {
  std::vector<std::shared_ptr<GroupMember>> group;
  for (Meeting& meeting : make_meeting_of_threads(members))
    group.push_back(std::make_shared<InProcess>(std::move(meeting)));
  return group;
}

}  // namespace lockstep::allreduce
