#include "lockstep/allreduce/algorithm/gpu/staged.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/gpu_member.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce {
namespace {

class Staged final : public GpuMember {
 public:
  Staged(std::shared_ptr<GroupMember> host, device::Device gpu, const StagedOptions& options)
      : GpuMember(std::move(host), gpu), segment_bytes_(options.segment_bytes) {
    LOCKSTEP_CHECK_OP(segment_bytes_, >, 0U);
    LOCKSTEP_CHECK_OP(segment_bytes_ % 64, ==, 0U);
  }

  std::string route() const override {
    return size() == 1 ? "none" : fmt::format("staged + {}", host().route());
  }
  bool overlaps() const override { return host().overlaps(); }
  bool moves_on_host() const override { return true; }

 protected:
  void enqueue_all_reduce(const Values& values, ReduceOp op) override {
    if (size() == 1) return;
    const std::size_t width = bytes_per_element(values.type);
    reserve(bytes_of(values));
    std::vector<device::Event> copied_to_host;
    for (std::size_t begin = 0; begin < bytes_of(values); begin += segment_bytes_) {
      copy_to_host(values.data + begin, begin, segment_at(values, begin));
      copied_to_host.push_back(stream().record());
    }
    for (std::size_t segment = 0; segment < copied_to_host.size(); ++segment) {
      const std::size_t begin = segment * segment_bytes_;
      const std::size_t bytes = segment_at(values, begin);
      wait_for(copied_to_host[segment]);
      complete(host().all_reduce({staged(begin), bytes / width, values.type}, op));
      gpu::copy(staged(begin), values.data + begin, bytes, stream());
    }
  }

  void enqueue_reduce_scatter(const Values& values, ReduceOp op) override {
    via_host(values.data, bytes_of(values), [&](std::byte* copy) {
      complete(host().reduce_scatter({copy, values.count, values.type}, op));
    });
  }

  void enqueue_gather_slices(const Values& values) override {
    via_host(values.data, bytes_of(values), [&](std::byte* copy) {
      complete(host().gather_slices({copy, values.count, values.type}));
    });
  }

  void enqueue_broadcast(std::span<std::byte> values, int root) override {
    via_host(values.data(), values.size(), [&](std::byte* copy) {
      host().broadcast({copy, values.size()}, root);
    });
  }

 private:
  static void complete(const std::unique_ptr<PendingOperation>& request) {
    if (request) request->wait();
  }

  std::byte* staged(std::size_t offset) const {
    return static_cast<std::byte*>(staged_.data()) + offset;
  }

  std::size_t segment_at(const Values& values, std::size_t begin) const {
    return std::min(segment_bytes_, bytes_of(values) - begin);
  }

  // Work on the stream may still use the old memory.
  void reserve(std::size_t bytes) {
    if (staged_.size() >= bytes) return;
    stream().synchronize();
    staged_ = device::make_pinned_allocator()->allocate(bytes);
  }

  void copy_to_host(const std::byte* from, std::size_t offset, std::size_t bytes) {
    gpu::copy(from, staged(offset), bytes, stream());
  }

  template <typename Operation>
  void via_host(std::byte* data, std::size_t bytes, Operation operation) {
    if (size() == 1) return;
    reserve(bytes);
    copy_to_host(data, 0, bytes);
    wait_for(stream().record());
    operation(staged(0));
    gpu::copy(staged(0), data, bytes, stream());
  }

  std::size_t segment_bytes_;
  device::Buffer staged_;
};

}  // namespace

std::vector<std::shared_ptr<GroupMember>> make_staged(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, const std::vector<device::Device>& gpus,
    const StagedOptions& options) {
  LOCKSTEP_CHECK_OP(hosts.size(), ==, gpus.size());
  std::vector<std::shared_ptr<GpuMember>> group;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    group.push_back(std::make_shared<Staged>(hosts[i], gpus[i], options));
  return connect_members(group);
}

}  // namespace lockstep::inline v0::allreduce
