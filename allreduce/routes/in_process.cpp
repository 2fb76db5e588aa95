#include "allreduce/routes/in_process.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "allreduce/routes/meeting.h"

namespace lockstep::allreduce {
namespace {

class InProcess final : public Communicator::Impl {
 public:
  InProcess(std::shared_ptr<Meeting> meeting, int rank) : meeting_(std::move(meeting)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }
  std::string route() const override { return "in-process"; }

  std::unique_ptr<Request::Impl> all_reduce(const Values& values, ReduceOp op) override {
    const Meeting::Table table = meeting_->meet(rank_, Call::all_reduce(values, op), values.data);
    reduce_slice(table.data, slice_of(values.count, values.type, size(), rank_), values.type, op,
                 ResultGoesTo::every_member);
    meeting_->wait();
    return nullptr;
  }

  void broadcast(std::span<std::byte> values, int root) override {
    const Meeting::Table table = meeting_->meet(rank_, Call::broadcast(values.size(), root), values.data());
    if (rank_ != root && !values.empty())
      std::memcpy(values.data(), table.data[static_cast<std::size_t>(root)], values.size());
    meeting_->wait();
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    // The table holds addresses of buffers that operations write to; nobody writes to these.
    auto* data = const_cast<std::byte*>(mine.data());
    const Meeting::Table table = meeting_->meet(rank_, Call::all_gather(mine.size()), data);
    std::vector<std::vector<std::byte>> all;
    for (std::size_t member = 0; member < table.calls.size(); ++member)
      all.emplace_back(table.data[member], table.data[member] + table.calls[member].count);
    meeting_->wait();
    return all;
  }

  void barrier() override { meeting_->meet(rank_, Call::barrier()); }

  bool any(bool mine) override {
    const Meeting::Table table = meeting_->meet(rank_, Call::any(mine));
    return std::ranges::any_of(table.calls, [](const Call& call) { return call.flag != 0; });
  }

  void fail(const Failure& failure) override { meeting_->fail(failure); }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Communicator::Impl>> make_in_process(int members) {
  const auto meeting = std::make_shared<Meeting>(members);
  std::vector<std::shared_ptr<Communicator::Impl>> group;
  for (int rank = 0; rank < members; ++rank) group.push_back(std::make_shared<InProcess>(meeting, rank));
  return group;
}

}  // namespace lockstep::allreduce
