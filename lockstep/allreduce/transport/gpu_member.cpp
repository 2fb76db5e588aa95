#include "lockstep/allreduce/transport/gpu_member.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::chrono::seconds kGpuEndLimit{5};

class GpuRequest final : public PendingOperation {
 public:
  GpuRequest(std::shared_ptr<GpuMember> member, device::Event event)
      : member_(std::move(member)), event_(std::move(event)) {}

  void wait() override { member_->wait_for(event_); }
  bool test() override { return member_->has_completed(event_); }

  void wait(device::Stream& stream) override {
    member_->throw_if_failed();
    stream.wait(event_);
  }

 private:
  std::shared_ptr<GpuMember> member_;
  device::Event event_;
};

std::span<std::byte> bytes_in(const Values& values) { return {values.data, bytes_of(values)}; }

}  // namespace

GpuMember::GpuMember(std::shared_ptr<GroupMember> host, device::Device gpu)
    : host_(std::move(host)), gpu_(gpu), stream_(gpu) {}

// On a failure, reports it to all members and aborts GPU work that waits for members that have
// left. A failure that the group already knows takes precedence over its consequences.
template <typename Operation>
auto GpuMember::guarded(Operation operation) -> decltype(operation()) {
  try {
    return operation();
  } catch (const std::exception& error) {
    handle_failure(error);
    throw;
  }
}

void GpuMember::handle_failure(const std::exception& error) {
  const ErrorMessage failure{
      "all_reduce", fmt::format("expected all members to continue, but member {} failed", rank()),
      error.what()};
  try {
    host_->throw_if_failed();
  } catch (const Error&) {
    stop(failure);
    wait_for_local_work();
    throw;
  }
  fail(failure);
  wait_for_local_work();
}

template <typename Condition>
bool GpuMember::wait_until(std::chrono::steady_clock::time_point deadline, Condition condition) {
  Backoff backoff;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    backoff.pause();
  }
  return true;
}

// The caller may free its values when it gets the error, so waits for GPU work, for a limited time
// because a failed GPU may never complete it.
void GpuMember::wait_for_local_work() noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kGpuEndLimit;
  can_enqueue_ = false;
  try {
    for (const auto& local : local_members_) {
      const std::shared_ptr<GpuMember> member = local.lock();
      if (!member) continue;
      if (wait_until(deadline, [&] { return !member->can_enqueue_; })) {
        const device::Event end = member->stream_.record();
        if (wait_until(deadline, [&] { return end.is_complete(); })) continue;
      }
      *member->is_stuck_ = true;
    }
  } catch (const Error&) {
    // The GPU has failed: no work is running.
  }
}

void GpuMember::fail(const ErrorMessage& failure) {
  host_->fail(failure);
  stop(failure);
}

void GpuMember::throw_if_failed() {
  guarded([&] { poll_group(); });
}

void GpuMember::poll_group() {
  check_progress();
  host_->throw_if_failed();
}

void GpuMember::wait_for(const device::Event& event) {
  guarded([&] {
    Backoff backoff;
    while (!event.is_complete())
      if (backoff.pause()) poll_group();
    // Aborted work is also complete.
    host_->throw_if_failed();
  });
}

bool GpuMember::has_completed(const device::Event& event) {
  return guarded([&] {
    const bool complete = event.is_complete();
    poll_group();
    return complete;
  });
}

device::Buffer GpuMember::allocate(std::size_t bytes) {
  const auto memory =
      std::make_shared<device::Buffer>(device::make_gpu_allocator(gpu_.index)->allocate(bytes));
  return {memory->data(), bytes, gpu_, [memory, is_stuck = is_stuck_](void*) {
            if (*is_stuck) new std::shared_ptr<device::Buffer>(memory);  // leaked
          }};
}

void GpuMember::start_after(device::Stream& stream) { after_ = stream.record(); }

void GpuMember::compare(const Call& call) {
  const std::vector<std::vector<std::byte>> all =
      host_->all_gather(std::as_bytes(std::span(&call, 1)));
  std::vector<Call> calls(all.size());
  std::vector<int> numbers(all.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::size_t member = 0; member < all.size(); ++member) {
    LOCKSTEP_CHECK_OP(all[member].size(), ==, sizeof(Call));
    std::memcpy(&calls[member], all[member].data(), sizeof(Call));
  }
  if (const auto difference = find_difference(calls, numbers)) {
    host_->fail(*difference);
    throw Error(ErrorCategory::communication, *difference);
  }
}

void GpuMember::arrive(const Call& call, std::byte* /*data*/) { compare(call); }

// CUDA is not queried during a recording, whose values have been reduced before.
bool GpuMember::is_on_gpu(const std::byte* values) {
  if (records_)
    LOCKSTEP_CHECK(on_gpu_.contains(values));
  else if (gpu::holds(values))
    on_gpu_.insert(values);
  else
    on_gpu_.erase(values);
  return on_gpu_.contains(values);
}

// The host reduces values in host memory. For empty values only the calls are compared.
template <typename OnHost, typename OnGpu>
std::unique_ptr<PendingOperation> GpuMember::run(const Call& call, std::span<std::byte> values,
                                                 OnHost on_host, OnGpu on_gpu) {
  return guarded([&]() -> std::unique_ptr<PendingOperation> {
    can_enqueue_ = true;  // until the group has failed or all work is enqueued
    host_->throw_if_failed();
    const std::optional<device::Event> after = std::exchange(after_, std::nullopt);
    if (!values.empty() && !is_on_gpu(values.data())) {
      can_enqueue_ = false;
      if (after) wait_for(*after);
      return on_host();
    }
    if (after) stream_.wait(*after);
    arrive(call, values.data());
    if (!values.empty()) on_gpu();
    can_enqueue_ = false;
    if (values.empty()) return nullptr;
    return std::make_unique<GpuRequest>(shared_from_this(), stream_.record());
  });
}

std::unique_ptr<PendingOperation> GpuMember::all_reduce(const Values& values, ReduceOp op) {
  return run(
      Call::all_reduce(values, op), bytes_in(values), [&] { return host_->all_reduce(values, op); },
      [&] { enqueue_all_reduce(values, op); });
}

std::unique_ptr<PendingOperation> GpuMember::reduce_scatter(const Values& values, ReduceOp op) {
  return run(
      Call::reduce_scatter(values, op), bytes_in(values),
      [&] { return host_->reduce_scatter(values, op); },
      [&] { enqueue_reduce_scatter(values, op); });
}

std::unique_ptr<PendingOperation> GpuMember::gather_slices(const Values& values) {
  return run(
      Call::gather_slices(values), bytes_in(values), [&] { return host_->gather_slices(values); },
      [&] { enqueue_gather_slices(values); });
}

void GpuMember::broadcast(std::span<std::byte> values, int root) {
  const auto on_host = [&]() -> std::unique_ptr<PendingOperation> {
    host_->broadcast(values, root);
    return nullptr;
  };
  const auto request = run(Call::broadcast(values.size(), root), values, on_host,
                           [&] { enqueue_broadcast(values, root); });
  if (request) request->wait();
}

std::vector<std::vector<std::byte>> GpuMember::all_gather(std::span<const std::byte> mine) {
  return guarded([&] { return host_->all_gather(mine); });
}

void GpuMember::barrier() {
  guarded([&] { host_->barrier(); });
}

bool GpuMember::any(bool mine) {
  return guarded([&] { return host_->any(mine); });
}

std::vector<std::shared_ptr<GroupMember>> connect_members(
    const std::vector<std::shared_ptr<GpuMember>>& members) {
  for (const auto& member : members) member->set_local_members({members.begin(), members.end()});
  return {members.begin(), members.end()};
}

}  // namespace lockstep::inline v0::allreduce
