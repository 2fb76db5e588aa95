#include "lockstep/allreduce/member/one_member.h"

#include <mutex>
#include <optional>

namespace lockstep::inline v0::allreduce {
namespace {

class OneMember final : public GroupMember {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string route() const override { return "none"; }
  bool overlaps() const override { return false; }
  double seconds_waited() const override { return 0; }

  std::unique_ptr<PendingOperation> all_reduce(const Values&, ReduceOp) override {
    throw_if_failed();
    return nullptr;
  }
  std::unique_ptr<PendingOperation> reduce_scatter(const Values&, ReduceOp) override {
    throw_if_failed();
    return nullptr;
  }
  std::unique_ptr<PendingOperation> gather_slices(const Values&) override {
    throw_if_failed();
    return nullptr;
  }
  void broadcast(std::span<std::byte>, int) override { throw_if_failed(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    throw_if_failed();
    return {{mine.begin(), mine.end()}};
  }
  void barrier() override { throw_if_failed(); }
  bool any(bool mine) override {
    throw_if_failed();
    return mine;
  }
  void fail(const ErrorMessage& failure) override {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }

  void throw_if_failed() override {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(ErrorCategory::communication, *failure_);
  }

 private:
  std::mutex mutex_;
  std::optional<ErrorMessage> failure_;
};

}  // namespace

std::shared_ptr<GroupMember> make_one_member() { return std::make_shared<OneMember>(); }

}  // namespace lockstep::inline v0::allreduce
