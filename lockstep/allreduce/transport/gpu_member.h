// What members on GPUs share. Each stands on a member of a group of the host: that one compares calls, carries control
// data and values in host memory, and tells failures. A kind of GPU group adds how it reduces memory of GPUs.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/allreduce/group_member.h"
#include "lockstep/device/stream.h"

namespace lockstep::allreduce {

class GpuMember : public GroupMember, public std::enable_shared_from_this<GpuMember> {
 public:
  /// `host` has the same members; `gpu` is this member's. Throws Error (device) where it is not available.
  GpuMember(std::shared_ptr<GroupMember> host, device::Device gpu);

  int rank() const final { return host_->rank(); }
  int size() const final { return host_->size(); }
  double seconds_waited() const final { return host_->seconds_waited(); }

  device::Buffer allocate(std::size_t bytes) override;
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) final;
  void start_after(device::Stream& stream) final;
  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) final;
  void broadcast(std::span<std::byte> values, int root) final;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) final;
  void barrier() final;
  bool any(bool mine) final;
  void fail(const Failure& failure) final;
  void throw_if_failed() final;
  void set_recording(bool on) final { records_ = on; }

  /// `local_members` are all of this process, this one among them.
  void know(std::vector<std::weak_ptr<GpuMember>> local_members) { local_members_ = std::move(local_members); }

  /// Blocks until `event` has come. Throws when the group fails before it.
  void wait_for(const device::Event& event);
  /// Whether `event` has come. Throws when the group has failed.
  bool has_come(const device::Event& event);

 protected:
  // What a kind supplies: all put their work on stream(), on values of this member's GPU, and are called after all
  // members have come with the same call. They may block the host.
  virtual void put_all_reduce(const Values& values, ReduceOp op) = 0;
  virtual void put_reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual void put_gather_slices(const Values& values) = 0;
  virtual void put_broadcast(std::span<std::byte> values, int root) = 0;

  /// Compares `call`, which is for `data`, with the others'. For a kind whose members tell each other more, or that
  /// can be recorded.
  virtual void come(const Call& call, std::byte* data);
  /// Throws if the work on stream() cannot come to its end.
  virtual void check_progress() {}
  /// Makes the work that this process has on its GPUs for this group end, in whatever state, because of `failure`,
  /// which the host's group knows. Any thread; does not wait.
  virtual void stop(const Failure& /*failure*/) noexcept {}

  /// Waits until every member has come with its call. Throws Error (communication), the same on all, where calls
  /// differ. True if all have the same flag.
  bool compare(const Call& call);
  /// check_progress() and throw_if_failed(); for long waits.
  void look_around();

  /// Whether operations are being recorded: then members do not come together on the host.
  bool records() const { return records_; }
  GroupMember& host() const { return *host_; }
  device::Device gpu() const { return gpu_; }
  device::Stream& stream() { return stream_; }

 private:
  template <typename Operation>
  auto guarded(Operation operation) -> decltype(operation());
  template <typename OnHost, typename OnGpu>
  std::unique_ptr<PendingOperation> run(const Call& call, std::span<std::byte> values, OnHost on_host, OnGpu on_gpu);
  void give_up(const std::exception& error);
  void await_end() noexcept;
  template <typename Condition>
  static void wait_until(std::chrono::steady_clock::time_point deadline, Condition condition);

  std::shared_ptr<GroupMember> host_;
  device::Device gpu_;
  device::Stream stream_;               // communication: beside the one that computes
  std::optional<device::Event> after_;  // what the next operation starts after
  std::vector<std::weak_ptr<GpuMember>> local_members_;
  std::atomic<bool> may_put_{false};  // work on the stream
  bool records_ = false;
};

/// The members of a group in this process, made known to each other: once the group has failed each waits for the work
/// of all of them to end before it throws, since that may be on its values.
std::vector<std::shared_ptr<GroupMember>> acquainted(const std::vector<std::shared_ptr<GpuMember>>& members);

}  // namespace lockstep::allreduce
