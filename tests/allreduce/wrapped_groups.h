// Groups that wrap another one and change the place of their values, or whether they overlap.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/allreduce/algorithm/in_process.h"
#include "lockstep/allreduce/member/one_member.h"
#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce {

/// Forwards everything to `inner`.
class WrappedMember : public GroupMember {
 public:
  explicit WrappedMember(std::shared_ptr<GroupMember> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string route() const override { return inner_->route(); }
  bool overlaps() const override { return inner_->overlaps(); }
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
  void broadcast(std::span<std::byte> values, int root) override {
    inner_->broadcast(values, root);
  }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return inner_->all_gather(mine);
  }
  void barrier() override { inner_->barrier(); }
  bool any(bool mine) override { return inner_->any(mine); }
  void fail(const ErrorMessage& failure) override { inner_->fail(failure); }
  void throw_if_failed() override { inner_->throw_if_failed(); }

 protected:
  GroupMember& inner() { return *inner_; }

 private:
  std::shared_ptr<GroupMember> inner_;
};

/// Simulates a network between the members, so that buckets are reduced during the computation.
class Overlapping final : public WrappedMember {
 public:
  using WrappedMember::WrappedMember;
  std::string route() const override { return "a network"; }
  bool overlaps() const override { return true; }
};

/// Threads of this process with a simulated network between them.
inline std::vector<Communicator> make_overlapping_group(int members) {
  if (members == 1) return {Communicator(std::make_shared<Overlapping>(make_one_member()))};
  std::vector<Communicator> group;
  for (auto& inner : make_in_process(members))
    group.emplace_back(std::make_shared<Overlapping>(std::move(inner)));
  return group;
}

/// For tests with values in host memory: runs each operation on a copy on the GPU.
class OnGpu final : public WrappedMember {
 public:
  OnGpu(std::shared_ptr<GroupMember> inner, device::Device gpu)
      : WrappedMember(std::move(inner)), stream_(gpu) {}

  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) override {
    return on_copy(values, [&](const Values& copy) { return inner().all_reduce(copy, op); });
  }
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) override {
    return on_copy(values, [&](const Values& copy) { return inner().reduce_scatter(copy, op); });
  }
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) override {
    return on_copy(values, [&](const Values& copy) { return inner().gather_slices(copy); });
  }
  void broadcast(std::span<std::byte> values, int root) override {
    const device::Buffer copy = copied(values);
    inner().broadcast({static_cast<std::byte*>(copy.data()), values.size()}, root);
    copy_back(copy, values);
  }

 private:
  template <typename Operation>
  std::unique_ptr<PendingOperation> on_copy(const Values& values, Operation operation) {
    const std::span<std::byte> bytes(values.data, bytes_of(values));
    const device::Buffer copy = copied(bytes);
    const auto request =
        operation({static_cast<std::byte*>(copy.data()), values.count, values.type});
    if (request) request->wait();
    copy_back(copy, bytes);
    return nullptr;
  }

  device::Buffer copied(std::span<const std::byte> values) {
    device::Buffer copy = inner().allocate(values.size());
    gpu::copy(values.data(), copy.data(), values.size(), stream_);
    stream_.synchronize();
    return copy;
  }

  void copy_back(const device::Buffer& copy, std::span<std::byte> values) {
    gpu::copy(copy.data(), values.data(), values.size(), stream_);
    stream_.synchronize();
  }

  device::Stream stream_;
};

/// Wraps the members of `group` in OnGpu; element i uses gpus[i].
inline std::vector<Communicator> on_gpus(const std::vector<Communicator>& group,
                                         const std::vector<device::Device>& gpus) {
  std::vector<Communicator> members;
  for (std::size_t i = 0; i < group.size(); ++i)
    members.emplace_back(std::make_shared<OnGpu>(group[i].impl(), gpus[i]));
  return members;
}

}  // namespace lockstep::inline v0::allreduce
