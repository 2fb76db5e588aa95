// Replicas that share a GPU, real or simulated: the test accesses values by copies. Skipped without
// a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr int kReplicas = 3;
const std::vector<device::Device> kFirstGpu(kReplicas, {device::DeviceKind::gpu, 0});

class OnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

using Floats = std::vector<float>;

template <typename ValueAt>
Floats values_of(std::size_t count, ValueAt value) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(i);
  return values;
}

void write(std::span<float> memory, const Floats& values, device::Stream& stream) {
  device::copy(memory.data(), values.data(), memory.size_bytes(), stream);
}

Floats read(std::span<float> memory, device::Stream& stream) {
  Floats values(memory.size());
  device::copy(values.data(), memory.data(), memory.size_bytes(), stream);
  stream.synchronize();
  return values;
}

// Copies large enough to reveal a sum that does not wait for them.
TEST_F(OnAGpu, SumsInStreamOrder) {
  constexpr std::size_t kValues = std::size_t{1} << 20;
  run_members(make_device_group(kFirstGpu), [](const Communicator& group) {
    EXPECT_EQ(group.route(), "in-gpu");
    EXPECT_FALSE(group.overlaps());
    device::Stream compute(kFirstGpu.front());
    const device::Buffer pinned =
        device::make_pinned_allocator()->allocate(kValues * sizeof(float));
    const device::Buffer buffer = group.allocate(kValues * sizeof(float));
    for (int step = 1; step <= 5; ++step) {
      std::ranges::fill(pinned.as<float>(), static_cast<float>(step));
      device::copy(buffer.data(), pinned.data(), pinned.size(), compute);
      group.all_reduce(buffer.as<float>(), ReduceOp::sum, compute).wait(compute);
      device::copy(pinned.data(), buffer.data(), pinned.size(), compute);
      compute.synchronize();
      for (const float value : pinned.as<float>())
        ASSERT_EQ(value, static_cast<float>(kReplicas * step));
    }
  });
}

// ---- Gradient buckets

// Values of very different sizes, some far below the range of float16.
float small_gradient(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) *
         (i % 100 < 50 ? 1e-6F : 3e-9F);
}

constexpr std::size_t kValues = 5000;
const std::vector<std::size_t> kParameterOffsets = {0, 700, 4990};

// The first member's sums, the last 10 of which are sent as float32.
Floats sum_of_gradients(const std::vector<Communicator>& members, bool on_gpu, WireType wire) {
  Floats sums;
  run_members(members, [&](const Communicator& group) {
    const Floats mine =
        values_of(kValues, [&](std::size_t i) { return small_gradient(group.rank(), i); });
    device::Stream stream(on_gpu ? kFirstGpu.front() : device::Device{});
    const device::Buffer buffer = group.allocate(kValues * sizeof(float));
    const std::span<float> gradients = buffer.as<float>();
    GradientBuckets buckets(group, gradients, kParameterOffsets,
                            {.first_bytes = 1, .bytes = 1, .wire = wire}, 1, &stream);
    for (int step = 0; step < 3; ++step) {  // the sum is the same in each step
      write(gradients, mine, stream);
      for (std::size_t parameter = 0; parameter < kParameterOffsets.size(); ++parameter)
        buckets.ready(parameter);
      buckets.finish();
    }
    const Floats all = read(gradients, stream);
    if (group.rank() == 0) sums = all;
  });
  return sums;
}

TEST_F(OnAGpu, BucketsMatchTheCpuBitwise) {
  for (const WireType wire : {WireType::float32, WireType::bfloat16, WireType::float16})
    EXPECT_EQ(sum_of_gradients(make_device_group(kFirstGpu), true, wire),
              sum_of_gradients(make_in_process_group(kReplicas), false, wire))
        << to_string(wire);
}

TEST_F(OnAGpu, SumsBucketsThroughTheHost) {
  const Floats expected =
      sum_of_gradients(make_in_process_group(kReplicas), false, WireType::float32);
  EXPECT_EQ(sum_of_gradients(make_device_group(kFirstGpu, Route::staged), true, WireType::float32),
            expected);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
