// A group of threads that behaves as if a wire lay between them, so that buckets are reduced beside the computation.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/in_process.h"
#include "lockstep/allreduce/algorithm/one_member.h"
#include "lockstep/allreduce/group_member.h"

namespace lockstep::allreduce {

class Overlapping final : public GroupMember {
 public:
  explicit Overlapping(std::shared_ptr<GroupMember> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string route() const override { return "a wire"; }
  bool overlaps() const override { return true; }
  double seconds_waited() const override { return inner_->seconds_waited(); }
  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) override {
    return inner_->all_reduce(values, op);
  }
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) override {
    return inner_->reduce_scatter(values, op);
  }
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) override {
    return inner_->gather_slices(values);
  }
  void broadcast(std::span<std::byte> values, int root) override { inner_->broadcast(values, root); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return inner_->all_gather(mine);
  }
  void barrier() override { inner_->barrier(); }
  bool any(bool mine) override { return inner_->any(mine); }
  void fail(const ErrorMessage& failure) override { inner_->fail(failure); }
  void throw_if_failed() override { inner_->throw_if_failed(); }

 private:
  std::shared_ptr<GroupMember> inner_;
};

inline std::vector<Communicator> make_overlapping_group(int members) {
  std::vector<Communicator> group;
  if (members == 1) return {Communicator(std::make_shared<Overlapping>(make_one_member()))};
  for (auto& inner : make_in_process(members)) group.emplace_back(std::make_shared<Overlapping>(std::move(inner)));
  return group;
}

}  // namespace lockstep::allreduce
