#include "lockstep/strategy/replica/gradient_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"

namespace lockstep::inline v0::strategy {
namespace {

using model::SummableMetrics;

namespace at {
enum Place : std::size_t { terminate = SummableMetrics::kSize, interrupt, hangup };
}

std::int64_t count(float value) { return std::llround(value); }

constexpr std::size_t kAlignment = 64;  // bytes; guaranteed by Buffer

/// Returns page-locked memory if a GPU accesses it.
std::unique_ptr<device::Allocator> host_memory_for(device::Device device) {
  if (device.kind == device::DeviceKind::gpu) return device::make_pinned_allocator();
  return std::make_unique<device::HostAllocator>();
}

/// Polls instead of synchronizing, because the work before `done` may wait for a failed replica.
void await(const device::Event& done, const allreduce::Communicator& group) {
  constexpr int kBriefLooks = 4096;
  for (int poll = 0; !done.is_complete(); ++poll) {
    if (poll < kBriefLooks) {
      std::this_thread::yield();
      continue;
    }
    group.throw_if_failed();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

// A separate counter for each signal, because ranks may have received different ones.
void StepReport::add_signal(int signal) {
  if (signal == SIGTERM) ++terminate;
  if (signal == SIGINT) ++interrupt;
  if (signal == SIGHUP) ++hangup;
}

void StepReport::write_signals(std::span<float> step_scalars) const {
  step_scalars[at::terminate] = static_cast<float>(terminate);
  step_scalars[at::interrupt] = static_cast<float>(interrupt);
  step_scalars[at::hangup] = static_cast<float>(hangup);
}

StepReport StepReport::read(std::span<const float> step_scalars) {
  const SummableMetrics summed(step_scalars.first<SummableMetrics::kSize>());
  StepReport report;
  report.metrics = summed.sums();
  report.non_finite = count(summed.non_finite);
  report.is_finite = SummableMetrics::is_finite(step_scalars.data());
  report.terminate = count(step_scalars[at::terminate]);
  report.interrupt = count(step_scalars[at::interrupt]);
  report.hangup = count(step_scalars[at::hangup]);
  return report;
}

device::Buffer GradientMemory::allocate(std::size_t bytes) {
  LOCKSTEP_CHECK_OP(memory_.size(), ==, std::size_t{0});
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::size_t together = padded + step_scalar_count() * sizeof(float);
  memory_ = group_.allocate(together);
  LOCKSTEP_CHECK_OP(memory_.size(), ==, together);
  return {memory_.data(), bytes, memory_.device(), [](void*) {}};
}

StepScalars::StepScalars(const GradientMemory& memory, allreduce::Communicator group,
                         device::Device device)
    : memory_(memory),
      group_(std::move(group)),
      staged_(host_memory_for(device)->allocate(memory.step_scalars().size_bytes())),
      busy_(static_cast<std::size_t>(group_.size())) {}

void StepScalars::stage(int signal, const allreduce::BusySeconds& busy) {
  StepReport report;
  report.add_signal(signal);
  const std::span<float> staged = staged_.as<float>();
  std::ranges::fill(staged, 0.0F);
  report.write_signals(staged);
  // The other replicas add zero here, so the sum contains the times of each replica.
  const std::span<float> mine = GradientMemory::of_replica(staged, group_.rank());
  mine[0] = static_cast<float>(busy.input);
  mine[1] = static_cast<float>(busy.compute);
  mine[2] = static_cast<float>(busy.processor);
}

void StepScalars::write(device::Stream& stream) const {
  const std::span<float> summed = memory_.step_scalars();
  device::copy(summed.data(), staged_.data(), summed.size_bytes(), stream);
}

void StepScalars::fetch(device::Stream& stream) {
  const std::span<float> summed = memory_.step_scalars();
  device::copy(staged_.data(), summed.data(), summed.size_bytes(), stream);
}

void StepScalars::end_step(device::Stream& stream) {
  if (end_)
    stream.record(*end_);
  else
    end_ = stream.record();
}

StepReport StepScalars::read() {
  LOCKSTEP_CHECK(end_.has_value());
  await(*end_, group_);
  const std::span<float> staged = staged_.as<float>();
  for (int replica = 0; replica < group_.size(); ++replica) {
    const std::span<float> theirs = GradientMemory::of_replica(staged, replica);
    busy_[replica] = {theirs[0], theirs[1], theirs[2]};
  }
  return StepReport::read(staged);
}

}  // namespace lockstep::inline v0::strategy
