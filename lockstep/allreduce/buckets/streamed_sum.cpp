#include "lockstep/allreduce/buckets/streamed_sum.h"

#include <chrono>
#include <type_traits>
#include <utility>

#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/transport/backoff.h"
#include "lockstep/base/error.h"
#include "lockstep/device/host_view.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::chrono::seconds kEndLimit{5};

template <typename Half>
constexpr ElementType kType =
    std::is_same_v<Half, Float16> ? ElementType::float16 : ElementType::bfloat16;

std::vector<float> copied(std::span<float> values, device::Stream& stream) {
  device::HostView view(values, stream);
  return {view.values().begin(), view.values().end()};
}

}  // namespace

StreamedSum::StreamedSum(const Communicator& group, device::Stream& compute, WireType wire)
    : compute_(compute), stream_(compute.device()), wire_(wire), group_(group) {
  LOCKSTEP_CHECK(compute.device().kind == device::DeviceKind::gpu);
  if (wire == WireType::float16) largest_ = group.allocate(sizeof(float));
}

StreamedSum::~StreamedSum() {
  const auto deadline = std::chrono::steady_clock::now() + kEndLimit;
  try {
    const device::Event end = stream_.record();
    Backoff backoff;
    while (!end.is_complete() && std::chrono::steady_clock::now() < deadline) backoff.pause();
    if (end.is_complete()) return;
    // The GPU may still write there, so the memory is leaked.
    new device::Buffer(std::move(halves_));
    new device::Buffer(std::move(largest_));
  } catch (const Error&) {
    // The GPU has failed: no work is running.
  }
}

void StreamedSum::reserve(std::size_t values) {
  stream_.synchronize();
  halves_ = group_.allocate(values * sizeof(std::uint16_t));
}

void StreamedSum::add_exact(const Communicator& group, std::span<float> values,
                            const device::Event& ready) {
  stream_.wait(ready);
  reduce(group, values);
}

void StreamedSum::add(const Communicator& group, std::span<float> values,
                      const device::Event& ready) {
  stream_.wait(ready);
  if (wire_ == WireType::bfloat16)
    add_as<BFloat16>(group, values);
  else if (wire_ == WireType::float16)
    add_as<Float16>(group, values);
  else
    reduce(group, values);
}

StreamedSum::Both StreamedSum::add_in_both_types(const Communicator& group, std::span<float> values,
                                                 const device::Event& ready) {
  const device::Buffer copy = group.allocate(values.size_bytes());
  const std::span<float> exact = copy.as<float>();
  stream_.wait(ready);
  gpu::copy(values.data(), exact.data(), values.size_bytes(), stream_);
  reduce(group, exact);
  add(group, values, ready);
  return {copied(values, stream_), copied(exact, stream_)};
}

template <typename Half>
void StreamedSum::add_as(const Communicator& group, std::span<float> values) {
  gpu::WireScale scale;
  if constexpr (std::is_same_v<Half, Float16>) {
    scale = {largest_.as<float>().data(), group.size()};
    gpu::find_largest(values, largest_.as<float>().data(), stream_);
    reduce(group, largest_.as<float>(), ReduceOp::max);
  }
  const std::span<Half> halves = halves_.as<Half>().first(values.size());
  gpu::narrow(values, halves.data(), kType<Half>, scale, stream_);
  reduce(group, halves);
  gpu::widen(halves.data(), values, kType<Half>, scale, stream_);
}

template <typename T>
void StreamedSum::reduce(const Communicator& group, std::span<T> values, ReduceOp op) {
  Request request = group.all_reduce(values, op, stream_);
  if (host_waits_)
    request.wait();
  else
    request.wait(stream_);
}

}  // namespace lockstep::inline v0::allreduce
