// A group of GPU replicas for tests that keep their values in host memory: each operation is done on a copy on the GPU.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/group_member.h"
#include "lockstep/allreduce/groups.h"
#include "lockstep/device/gpu.h"

namespace lockstep::allreduce {

class OnGpu final : public GroupMember {
 public:
  OnGpu(std::shared_ptr<GroupMember> inner, device::Device gpu) : inner_(std::move(inner)), stream_(gpu) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string route() const override { return inner_->route(); }
  bool overlaps() const override { return inner_->overlaps(); }
  double seconds_waited() const override { return inner_->seconds_waited(); }

  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) override {
    return on_copy(values, [&](const Values& copy) { return inner_->all_reduce(copy, op); });
  }
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) override {
    return on_copy(values, [&](const Values& copy) { return inner_->reduce_scatter(copy, op); });
  }
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) override {
    return on_copy(values, [&](const Values& copy) { return inner_->gather_slices(copy); });
  }
  void broadcast(std::span<std::byte> values, int root) override {
    const device::Buffer copy = copied(values);
    inner_->broadcast({static_cast<std::byte*>(copy.data()), values.size()}, root);
    copy_back(copy, values);
  }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return inner_->all_gather(mine);
  }
  void barrier() override { inner_->barrier(); }
  bool any(bool mine) override { return inner_->any(mine); }
  void fail(const ErrorMessage& failure) override { inner_->fail(failure); }
  void throw_if_failed() override { inner_->throw_if_failed(); }

 private:
  template <typename Operation>
  std::unique_ptr<PendingOperation> on_copy(const Values& values, Operation operation) {
    const std::span<std::byte> bytes(values.data, bytes_of(values));
    const device::Buffer copy = copied(bytes);
    const auto request = operation({static_cast<std::byte*>(copy.data()), values.count, values.type});
    if (request) request->wait();
    copy_back(copy, bytes);
    return nullptr;
  }

  device::Buffer copied(std::span<const std::byte> values) {
    device::Buffer copy = inner_->allocate(values.size());
    gpu::copy(values.data(), copy.data(), values.size(), stream_);
    stream_.synchronize();
    return copy;
  }

  void copy_back(const device::Buffer& copy, std::span<std::byte> values) {
    gpu::copy(copy.data(), values.data(), values.size(), stream_);
    stream_.synchronize();
  }

  std::shared_ptr<GroupMember> inner_;
  device::Stream stream_;
};

/// The members of `group`, element i of which is for gpus[i], as such.
inline std::vector<Communicator> on_gpus(const std::vector<Communicator>& group,
                                         const std::vector<device::Device>& gpus) {
  std::vector<Communicator> members;
  for (std::size_t i = 0; i < group.size(); ++i)
    members.emplace_back(std::make_shared<OnGpu>(group[i].impl(), gpus[i]));
  return members;
}

/// gpu:first, gpu:first + 1, …, gpu:first again after the last one that this process sees.
inline std::vector<device::Device> gpus_in_turn(int count, int first = 0) {
  const int seen = std::max(1, static_cast<int>(device::list_gpus().size()));
  std::vector<device::Device> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back({device::DeviceKind::gpu, (first + i) % seen});
  return gpus;
}

}  // namespace lockstep::allreduce
