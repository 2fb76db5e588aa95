// The contract of groups of GPU replicas beyond that of all routes, on simulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/device/buffer.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

const std::vector<device::Device> kOneGpu(3, pretend::gpus(1).front());

template <typename T>
std::span<T> fill(const device::Buffer& buffer, std::size_t count, T value) {
  const std::span<T> values = buffer.as<T>().first(count);
  std::ranges::fill(values, value);
  return values;
}

TEST(GpuGroup, AcceptsOneMember) {
  const Communicator group = make_device_group(pretend::gpus(1)).front();
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.route(), "none");
  const device::Buffer buffer = group.allocate(400);
  EXPECT_EQ(buffer.device(), pretend::gpus(1).front());
  device::Stream stream(pretend::gpus(1).front());
  const std::span<float> values = fill(buffer, 100, 2.0F);
  group.all_reduce(values, ReduceOp::sum, stream).wait();
  EXPECT_EQ(values[99], 2.0F);
}

TEST(GpuGroup, ReducesHostMemoryOnTheHost) {
  run_members(make_device_group(kOneGpu), [](const Communicator& group) {
    std::vector<double> metrics = {1.0, static_cast<double>(group.rank())};
    sum_and_wait(group, metrics);
    EXPECT_EQ(metrics, (std::vector{3.0, 3.0}));
    std::int32_t chosen = group.rank();
    group.broadcast(std::as_writable_bytes(std::span(&chosen, 1)), 2);
    EXPECT_EQ(chosen, 2);
  });
}

TEST(GpuGroup, MixedHostAndGpuMemoryDoesNotHang) {
  const std::vector<Communicator> members = make_device_group(kOneGpu);
  run_members(members, [](const Communicator& group) {
    std::vector<float> on_host(100);
    const device::Buffer on_gpu = group.allocate(400);
    const std::span<float> values = group.rank() == 0 ? std::span(on_host) : on_gpu.as<float>();
    EXPECT_THAT(error_of([&] { group.all_reduce(values).wait(); }),
                HasSubstr("expected the same call on all members"));
  });
}

TEST(GpuGroup, IsOrderedWithTheStream) {
  run_members(make_device_group(kOneGpu), [](const Communicator& group) {
    constexpr std::size_t kCount = 10'000;
    device::Stream compute(pretend::gpus(1).front());
    const device::Buffer buffer = group.allocate(kCount * sizeof(float));
    const std::span<float> values = buffer.as<float>();
    std::vector<float> seen(kCount);
    for (int step = 1; step <= 20; ++step) {
      pretend::enqueue(compute, [=] {
        std::this_thread::sleep_for(200us);
        std::ranges::fill(values, static_cast<float>(step));
      });
      Request request = group.all_reduce(values, ReduceOp::sum, compute);
      request.wait(compute);
      pretend::enqueue(compute, [&seen, values] { std::ranges::copy(values, seen.begin()); });
      compute.synchronize();
      ASSERT_EQ(seen, std::vector<float>(kCount, static_cast<float>(3 * step)));
    }
  });
}

TEST(GpuGroup, HostMemoryIsOrderedWithTheStream) {
  run_members(make_device_group(kOneGpu), [](const Communicator& group) {
    device::Stream compute(pretend::gpus(1).front());
    std::vector<float> values(100);
    pretend::enqueue(compute, [&] {
      std::this_thread::sleep_for(1ms);
      std::ranges::fill(values, 1.0F);
    });
    group.all_reduce(std::span(values), ReduceOp::sum, compute).wait();
    EXPECT_EQ(values.back(), 3.0F);
  });
}

TEST(GpuGroup, DoesNotBlockTheHost) {
  run_members(make_device_group(kOneGpu), [](const Communicator& group) {
    device::Stream compute(pretend::gpus(1).front());
    const device::Buffer buffer = group.allocate(400);
    std::atomic<bool> may_continue = false;
    pretend::enqueue(compute, [&] {
      while (!may_continue) std::this_thread::yield();
    });
    Request request = group.all_reduce(buffer.as<float>(), ReduceOp::sum, compute);
    EXPECT_FALSE(request.test());
    may_continue = true;
    request.wait();
    EXPECT_TRUE(request.test());
  });
}

// The simulated GPU ends the program if work uses freed memory.
TEST(GpuGroup, DoesNotFreeMemoryThatAGpuMayStillUseAfterAFailure) {
  std::atomic<bool> may_continue = false;
  const std::vector<device::Device> gpus(2, pretend::gpus(1).front());
  {
    std::vector<device::Stream> compute;
    for (const device::Device& gpu : gpus) compute.emplace_back(gpu);
    run_members(make_device_group(gpus), [&](const Communicator& group) {
      device::Stream& stream = compute[static_cast<std::size_t>(group.rank())];
      pretend::enqueue(stream, [&] {
        while (!may_continue) std::this_thread::yield();
      });
      const device::Buffer buffer = group.allocate(400);
      EXPECT_THAT(error_of([&] {
                    Request request = group.all_reduce(buffer.as<float>(), ReduceOp::sum, stream);
                    if (group.rank() == 1) group.abort("enough");
                    request.wait();
                  }),
                  HasSubstr("member 1 left: enough"));
    });
    may_continue = true;
    for (device::Stream& stream : compute) stream.synchronize();
  }
}

TEST(GpuGroup, CpuGroupRejectsAGpuStream) {
  device::Stream stream(pretend::gpus(1).front());
  std::vector<float> values(10);
  for (const Communicator& group : make_device_group({device::Device{}, device::Device{}}))
    EXPECT_EQ(error_of([&] { group.all_reduce(std::span(values), ReduceOp::sum, stream).wait(); }),
              "[all_reduce] expected a group of GPU replicas for a GPU stream, got a stream of "
              "gpu:0 for route in-process");
}

TEST(InGpu, RejectsMoreMembersThanAKernelReads) {
  const std::vector<device::Device> many(33, pretend::gpus(1).front());
  EXPECT_EQ(error_of([&] { make_device_group(many); }),
            "[--allreduce] expected at most 32 replicas per GPU, got 33");
}

TEST(GpuGroup, RejectsUnevenMembersPerGpu) {
  std::vector<device::Device> gpus = pretend::gpus(2);
  gpus.push_back(gpus.front());
  EXPECT_EQ(
      error_of([&] { make_device_group(gpus); }),
      "[--allreduce] expected a GPU for each replica, or one GPU for all, got gpu:0, gpu:1, gpu:0");
}

TEST(GpuGroup, LeavingThreadFailsAllMembers) {
  const std::vector<Communicator> members = make_device_group(kOneGpu);
  std::thread other([&] {
    std::this_thread::sleep_for(5ms);
    members[1].abort("enough");
  });
  run_members(members, [](const Communicator& group) {
    const device::Buffer buffer = group.allocate(4000);
    const std::string message = error_of([&] {
      for (;;) group.all_reduce(buffer.as<float>()).wait();
    });
    EXPECT_EQ(message, "[all_reduce] expected all 3 members of the group; member 1 left: enough");
    EXPECT_EQ(error_of([&] { group.barrier(); }), message);
  });
  other.join();
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
