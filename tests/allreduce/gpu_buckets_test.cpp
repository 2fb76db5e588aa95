// Gradient buckets in the memory of simulated GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <thread>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/algorithm/gpu/staged.h"
#include "lockstep/allreduce/buckets/gradient_buckets.h"
#include "lockstep/allreduce/groups/groups.h"
#include "tests/allreduce/wrapped_groups.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

using namespace std::chrono_literals;

constexpr int kMembers = 3;

struct GpuKind {
  std::string name;
  std::vector<device::Device> gpus;
  Route route = Route::automatic;
  bool is_over_network = false;  // as reported to the buckets

  std::vector<Communicator> make() const {
    if (!is_over_network) return make_device_group(gpus, route);
    std::vector<std::shared_ptr<GroupMember>> hosts;
    for (const Communicator& host : make_overlapping_group(kMembers)) hosts.push_back(host.impl());
    std::vector<Communicator> group;
    for (const auto& member : make_staged(hosts, gpus, {.segment_bytes = 4096}))
      group.emplace_back(member);
    return group;
  }
};

std::vector<GpuKind> gpu_kinds() {
  const std::vector<device::Device> one(kMembers, pretend::gpus(1).front());
  std::vector<GpuKind> kinds = {{"in_gpu", one},
                                {"staged", pretend::gpus(kMembers), Route::staged},
                                {"staged_over_network", one, Route::staged, true}};
  if (nccl_built_version() != "absent") kinds.push_back({"nccl", pretend::gpus(kMembers)});
  return kinds;
}

// One member: its gradients on its GPU, and the stream that computes them.
class Computing {
 public:
  Computing(const Communicator& group, const GpuKind& kind, std::size_t count)
      : stream(kind.gpus[static_cast<std::size_t>(group.rank())]),
        buffer_(group.allocate(count * sizeof(float))) {}

  std::span<float> gradients() const { return buffer_.as<float>(); }

  // Like the backward pass: the values are written some time after the call.
  void compute(std::span<float> values, std::function<float(std::size_t)> value) {
    pretend::enqueue(stream, [values, value = std::move(value)] {
      std::this_thread::sleep_for(50us);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
    });
  }

  device::Stream stream;

 private:
  device::Buffer buffer_;
};

class GpuBuckets : public ::testing::TestWithParam<GpuKind> {
 protected:
  static std::vector<Communicator> make() { return GetParam().make(); }
};

TEST_P(GpuBuckets, SumWorkEnqueuedBeforeReady) {
  constexpr std::size_t kParameters = 12;
  constexpr std::size_t kEach = 3000;
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < kParameters; ++i) offsets.push_back(i * kEach);
  run_members(make(), [&](const Communicator& group) {
    Computing member(group, GetParam(), kParameters * kEach);
    const std::span<float> gradients = member.gradients();
    GradientBuckets buckets(group, gradients, offsets,
                            {.first_bytes = 4 * kEach, .bytes = 8 * kEach}, 0, &member.stream);
    std::vector<float> seen(gradients.size());
    for (int step = 0; step < 10; ++step) {
      for (std::size_t parameter = 0; parameter < kParameters; ++parameter) {
        const float base = static_cast<float>(group.rank() + step);
        member.compute(gradients.subspan(parameter * kEach, kEach),
                       [=](std::size_t i) { return base + static_cast<float>(i % 5); });
        buckets.ready(parameter);
      }
      buckets.finish();
      pretend::enqueue(member.stream, [&] { std::ranges::copy(gradients, seen.begin()); });
      member.stream.synchronize();
      for (std::size_t i = 0; i < seen.size(); ++i)
        ASSERT_EQ(seen[i], static_cast<float>(3 + 3 * step) + 3 * static_cast<float>(i % kEach % 5))
            << i;
    }
    EXPECT_EQ(buckets.launched(), 10 * buckets.buckets().size());
  });
}

TEST_P(GpuBuckets, LaunchEarlyIfTheGroupOverlaps) {
  run_members(make(), [&](const Communicator& group) {
    Computing member(group, GetParam(), 10);
    GradientBuckets buckets(group, member.gradients(), std::vector<std::size_t>{0, 2, 5, 6},
                            {.first_bytes = 16, .bytes = 16}, 0, &member.stream);
    buckets.ready(0);
    EXPECT_EQ(buckets.launched(), 0U);
    buckets.ready(1);
    EXPECT_EQ(buckets.launched(), group.overlaps() ? 1U : 0U);
    buckets.finish();
    EXPECT_EQ(buckets.launched(), 2U);
  });
}

TEST_P(GpuBuckets, BlockTheHostOnRequest) {
  run_members(make(), [&](const Communicator& group) {
    Computing member(group, GetParam(), 2000);
    GradientBuckets buckets(group, member.gradients(), std::vector<std::size_t>{0, 1000},
                            {.first_bytes = 4000, .bytes = 4000}, 0, &member.stream);
    buckets.set_host_waits(true);
    member.compute(member.gradients(), [](std::size_t) { return 1.0F; });
    buckets.ready(0);
    buckets.ready(1);
    buckets.finish();
    EXPECT_EQ(member.gradients()[0], 3.0F);
    EXPECT_EQ(member.gradients()[1999], 3.0F);
  });
}

TEST_P(GpuBuckets, DoNotBlockTheHost) {
  run_members(make(), [&](const Communicator& group) {
    if (group.moves_on_host()) return;
    Computing member(group, GetParam(), 2000);
    GradientBuckets buckets(group, member.gradients(), std::vector<std::size_t>{0, 1000},
                            {.first_bytes = 4000, .bytes = 4000, .wire = WireType::float16}, 0,
                            &member.stream);
    std::atomic<bool> may_continue = false;
    pretend::enqueue(member.stream, [&] {
      while (!may_continue) std::this_thread::yield();
      std::ranges::fill(member.gradients(), 1.0F);
    });
    buckets.ready(0);
    buckets.ready(1);
    buckets.finish();
    may_continue = true;
    member.stream.synchronize();
    EXPECT_EQ(member.gradients()[0], 3.0F);
    EXPECT_EQ(member.gradients()[1999], 3.0F);
  });
}

INSTANTIATE_TEST_SUITE_P(Routes, GpuBuckets, ::testing::ValuesIn(gpu_kinds()),
                         [](const auto& kind) { return kind.param.name; });

// ---- 16-bit communication

// Values of very different sizes, some far below the range of float16.
float gradient(int rank, std::size_t i) {
  return std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) *
         (i % 100 < 50 ? 1e-6F : 3e-9F);
}

constexpr std::size_t kGradients = 5000;
const std::vector<std::size_t> kOffsets = {0, 700, 4990};

struct Outcome {
  std::vector<float> sums;
  WireError error;
};

// The first member's sums of values(rank, i), the last 10 of which are sent as float32.
template <typename ValueOf>
Outcome sum_narrow(const std::vector<Communicator>& members, const GpuKind* kind, WireType wire,
                   ValueOf value) {
  Outcome outcome;
  run_members(members, [&](const Communicator& group) {
    std::vector<float> on_host(kGradients);
    std::optional<Computing> member;
    if (kind != nullptr) member.emplace(group, *kind, kGradients);
    const std::span<float> gradients = member ? member->gradients() : std::span(on_host);
    GradientBuckets buckets(group, gradients, kOffsets,
                            {.first_bytes = 1, .bytes = 1, .wire = wire}, 1,
                            member ? &member->stream : nullptr);
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < kGradients; ++i) gradients[i] = value(group.rank(), i);
      if (step == 1) buckets.measure_wire_error();
      buckets.finish();
      if (member) member->stream.synchronize();
    }
    if (group.rank() == 0) outcome = {{gradients.begin(), gradients.end()}, buckets.wire_error()};
  });
  return outcome;
}

class NarrowGpuBuckets : public ::testing::TestWithParam<WireType> {};

TEST_P(NarrowGpuBuckets, MatchTheCpuBitwise) {
  const Outcome cpu = sum_narrow(make_in_process_group(kMembers), nullptr, GetParam(), gradient);
  const GpuKind kind = gpu_kinds().front();
  const Outcome gpu = sum_narrow(kind.make(), &kind, GetParam(), gradient);
  EXPECT_EQ(gpu.sums, cpu.sums);
  EXPECT_GT(gpu.error.relative, 0);
  EXPECT_EQ(gpu.error.relative, cpu.error.relative);
  EXPECT_EQ(gpu.error.largest, cpu.error.largest);
}

TEST_P(NarrowGpuBuckets, ErrorIsBoundedByTheTypeOnEveryRoute) {
  for (const GpuKind& kind : gpu_kinds()) {
    const Outcome gpu = sum_narrow(kind.make(), &kind, GetParam(), gradient);
    for (std::size_t i = 0; i < 4990; ++i)
      ASSERT_NEAR(gpu.sums[i], gradient(0, i) + gradient(1, i) + gradient(2, i), 3e-6F * 0x1p-7F)
          << kind.name << i;
    EXPECT_LT(gpu.error.relative, GetParam() == WireType::float16 ? 1e-3 : 5e-3) << kind.name;
  }
}

TEST_P(NarrowGpuBuckets, PropagateNonFiniteValues) {
  const auto value = [](int rank, std::size_t i) {
    if (rank == 1 && i == 1) return std::numeric_limits<float>::infinity();
    if (rank == 0 && i == 800) return std::numeric_limits<float>::quiet_NaN();
    return 1.0F;
  };
  const GpuKind kind = gpu_kinds().front();
  const Outcome gpu = sum_narrow(kind.make(), &kind, GetParam(), value);
  EXPECT_EQ(gpu.sums[0], 3.0F);
  EXPECT_TRUE(std::isinf(gpu.sums[1]));
  EXPECT_TRUE(std::isnan(gpu.sums[800]));
  EXPECT_EQ(gpu.sums[801], 3.0F);
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowGpuBuckets,
                         ::testing::Values(WireType::bfloat16, WireType::float16),
                         [](const auto& type) { return to_string(type.param); });

TEST(GpuGradientBuckets, ReportAMemberThatLeft) {
  const GpuKind kind = gpu_kinds().front();
  run_members(kind.make(), [&](const Communicator& group) {
    Computing member(group, kind, 10);
    GradientBuckets buckets(group, member.gradients(), std::vector<std::size_t>{0}, {}, 0,
                            &member.stream);
    if (group.rank() == 1) return group.abort("its device failed");
    EXPECT_THAT(error_of([&] { buckets.finish(); }),
                ::testing::HasSubstr("member 1 left: its device failed"));
  });
}

TEST(GpuGradientBuckets, ReduceOnTheHostForACpuStream) {
  run_members(make_in_process_group(2), [](const Communicator& group) {
    device::Stream stream(device::Device{});
    std::vector<float> gradients(10, 1.0F);
    GradientBuckets buckets(group, gradients, std::vector<std::size_t>{0}, {}, 0, &stream);
    buckets.finish();
    EXPECT_EQ(gradients[9], 2.0F);
  });
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
