#include "lockstep/allreduce/algorithm/gpu/in_gpu.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/gpu_member.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

// A member's data for an operation. The member writes it before the barrier that compares the
// calls; the others read it afterwards. A second barrier ends the operation: `data` and `ready` are
// read only before it, and `done` only between it and the next barrier.
struct alignas(64) Participant {
  std::byte* data = nullptr;
  std::optional<device::Event> ready;  // its values are ready
  std::optional<device::Event> done;   // its part of the operation is done
};

class InGpu final : public GpuMember {
 public:
  InGpu(std::shared_ptr<GroupMember> host, device::Device gpu,
        std::shared_ptr<std::vector<Participant>> participants)
      : GpuMember(std::move(host), gpu), participants_(std::move(participants)) {}

  std::string route() const override { return size() == 1 ? "none" : "in-gpu"; }
  bool overlaps() const override { return false; }
  bool moves_on_host() const override { return false; }

 protected:
  void arrive(const Call& call, std::byte* data) override {
    Participant& mine = participant(rank());
    mine.data = data;
    mine.ready = stream().record();
    compare(call);
  }

  void enqueue_all_reduce(const Values& values, ReduceOp op) override {
    wait_for_values();
    const std::vector<std::byte*> buffers = buffers_of_all();
    reduce_to(buffers, values, op);
    end();
  }

  void enqueue_reduce_scatter(const Values& values, ReduceOp op) override {
    wait_for_values();
    reduce_to(std::array{values.data}, values, op);
    end();
  }

  void enqueue_gather_slices(const Values& values) override {
    wait_for_values();
    const Slice mine = slice_of(values.count, values.type, size(), rank());
    const std::size_t width = bytes_per_element(values.type);
    for (std::byte* other : buffers_of_all())
      if (other != values.data)
        gpu::copy(values.data + mine.begin * width, other + mine.begin * width,
                  (mine.end - mine.begin) * width, stream());
    end();
  }

  void enqueue_broadcast(std::span<std::byte> values, int root) override {
    wait_for_values();
    if (rank() != root) gpu::copy(participant(root).data, values.data(), values.size(), stream());
    end();
  }

 private:
  Participant& participant(int member) { return (*participants_)[member]; }

  std::vector<std::byte*> buffers_of_all() {
    std::vector<std::byte*> buffers;
    for (const Participant& participant : *participants_) buffers.push_back(participant.data);
    return buffers;
  }

  void reduce_to(std::span<std::byte* const> results, const Values& values, ReduceOp op) {
    const std::vector<std::byte*> buffers = buffers_of_all();
    const std::vector<const std::byte*> members(buffers.begin(), buffers.end());
    gpu::reduce_slice(members, results, slice_of(values.count, values.type, size(), rank()),
                      values.type, op, stream());
  }

  void wait_for_values() {
    for (int member = 0; member < size(); ++member)
      if (member != rank()) stream().wait(*participant(member).ready);
  }

  // Values must not change while another member still reads or writes them.
  void end() {
    participant(rank()).done = stream().record();
    host().barrier();
    for (int member = 0; member < size(); ++member)
      if (member != rank()) stream().wait(*participant(member).done);
  }

  std::shared_ptr<std::vector<Participant>> participants_;
};

}  // namespace

std::vector<std::shared_ptr<GroupMember>> make_in_gpu(
    const std::vector<std::shared_ptr<GroupMember>>& hosts, device::Device gpu) {
  LOCKSTEP_CHECK_OP(hosts.size(), <=, gpu::kMaxMembers);
  const auto participants = std::make_shared<std::vector<Participant>>(hosts.size());
  std::vector<std::shared_ptr<GpuMember>> group;
  for (const auto& host : hosts) group.push_back(std::make_shared<InGpu>(host, gpu, participants));
  return connect_members(group);
}

}  // namespace lockstep::inline v0::allreduce
