// The base class of members on GPUs. Each uses a member of a host group to compare calls, to
// transfer control data and values in host memory, and to report failures. Derived classes add the
// reduction of GPU memory.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::allreduce {

class GpuMember : public GroupMember, public std::enable_shared_from_this<GpuMember> {
 public:
  /// `host` is a group of the same members; `gpu` is this member's GPU. Throws Error (device) if it
  /// is not available.
  GpuMember(std::shared_ptr<GroupMember> host, device::Device gpu);

  int rank() const final { return host_->rank(); }
  int size() const final { return host_->size(); }
  double seconds_waited() const final { return host_->seconds_waited(); }

  /// Leaked if the group fails while its members still have work on a GPU.
  device::Buffer allocate(std::size_t bytes) final;
  void start_after(device::Stream& stream) final;
  std::unique_ptr<PendingOperation> all_reduce(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> reduce_scatter(const Values& values, ReduceOp op) final;
  std::unique_ptr<PendingOperation> gather_slices(const Values& values) final;
  void broadcast(std::span<std::byte> values, int root) final;
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) final;
  void barrier() final;
  bool any(bool mine) final;
  void fail(const ErrorMessage& failure) final;
  void throw_if_failed() final;
  void set_recording(bool on) final { records_ = on; }

  /// `local_members` are all members in this process, including this one.
  void set_local_members(std::vector<std::weak_ptr<GpuMember>> local_members) {
    local_members_ = std::move(local_members);
  }

  /// Blocks until `event` is complete. Throws if the group fails first.
  void wait_for(const device::Event& event);
  /// Whether `event` is complete. Throws if the group has failed.
  bool has_completed(const device::Event& event);

 protected:
  // Derived classes implement these. They enqueue their work on stream(), on values of this
  // member's GPU, and are called after all members have arrived with the same call. They may block
  // the host.
  virtual void enqueue_all_reduce(const Values& values, ReduceOp op) = 0;
  virtual void enqueue_reduce_scatter(const Values& values, ReduceOp op) = 0;
  virtual void enqueue_gather_slices(const Values& values) = 0;
  virtual void enqueue_broadcast(std::span<std::byte> values, int root) = 0;

  /// Compares `call`, which is for `data`, with the other members' calls. Overridden by classes
  /// whose members exchange more data or can be recorded.
  virtual void arrive(const Call& call, std::byte* data);
  /// Throws if the work on stream() cannot complete.
  virtual void check_progress() {}
  /// Aborts this group's work on the GPUs of this process because of `failure`, which the host
  /// group knows. Thread-safe; does not wait.
  virtual void stop(const ErrorMessage& /*failure*/) noexcept {}

  /// Waits until every member has arrived with its call. Throws Error (communication), the same on
  /// all, if calls differ.
  void compare(const Call& call);
  /// Calls check_progress() and throw_if_failed(); for long waits.
  void poll_group();

  /// Whether operations are being recorded: then members do not synchronize on the host.
  bool records() const { return records_; }
  GroupMember& host() const { return *host_; }
  device::Device gpu() const { return gpu_; }
  device::Stream& stream() { return stream_; }

 private:
  template <typename Operation>
  auto guarded(Operation operation) -> decltype(operation());
  template <typename OnHost, typename OnGpu>
  std::unique_ptr<PendingOperation> run(const Call& call, std::span<std::byte> values,
                                        OnHost on_host, OnGpu on_gpu);
  void handle_failure(const std::exception& error);
  void wait_for_local_work() noexcept;
  bool is_on_gpu(const std::byte* values);
  template <typename Condition>
  static bool wait_until(std::chrono::steady_clock::time_point deadline, Condition condition);

  std::shared_ptr<GroupMember> host_;
  device::Device gpu_;
  device::Stream stream_;  // the communication stream, separate from the computing stream
  std::optional<device::Event> after_;  // the next operation starts after this event
  std::vector<std::weak_ptr<GpuMember>> local_members_;
  std::atomic<bool> can_enqueue_{false};  // whether an operation may enqueue work on the stream
  bool records_ = false;
  std::set<const std::byte*> on_gpu_;  // values that were found in GPU memory
  // Whether work may still use the memory of allocate().
  std::shared_ptr<std::atomic<bool>> is_stuck_ = std::make_shared<std::atomic<bool>>(false);
};

/// Connects the members of a group in this process: after a failure of the group, each waits until
/// the work of all of them has ended before it throws, because that work may use its values.
std::vector<std::shared_ptr<GroupMember>> connect_members(
    const std::vector<std::shared_ptr<GpuMember>>& members);

}  // namespace lockstep::inline v0::allreduce
