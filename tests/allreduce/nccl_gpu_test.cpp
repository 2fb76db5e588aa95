// NCCL on one GPU, real or simulated; skipped without a GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/host_view.h"
#include "lockstep/device/recording.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::StartsWith;

constexpr device::Device kNcclGpu = {device::DeviceKind::gpu, 0};
constexpr std::size_t kNcclValues = 100'003;

class NcclOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }

  static Communicator make_group_of_one() {
    return Communicator(make_nccl({make_in_process_group(1).front().impl()}, {kNcclGpu},
                                  make_in_process_group(1).front())
                            .front());
  }
};

std::vector<float> values_on_host() {
  std::vector<float> values(kNcclValues);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

void copy_to(const device::Buffer& buffer, const std::vector<float>& values,
             device::Stream& stream) {
  gpu::copy(values.data(), buffer.data(), values.size() * sizeof(float), stream);
}

std::vector<float> copy_from(const device::Buffer& buffer, device::Stream& stream) {
  std::vector<float> values(kNcclValues);
  gpu::copy(buffer.data(), values.data(), kNcclValues * sizeof(float), stream);
  stream.synchronize();
  return values;
}

TEST_F(NcclOnAGpu, AcceptsOneMember) {
  const Communicator group = make_group_of_one();
  device::Stream stream(kNcclGpu);
  for (const bool own : {true, false}) {
    const device::Buffer buffer =
        own ? group.allocate(kNcclValues * sizeof(float))
            : device::make_gpu_allocator(kNcclGpu.index)->allocate(kNcclValues * sizeof(float));
    EXPECT_EQ(copy_from(buffer, stream), std::vector<float>(kNcclValues));
    const std::span<float> values = buffer.as<float>();
    copy_to(buffer, values_on_host(), stream);
    group.all_reduce(values, ReduceOp::sum, stream).wait(stream);
    EXPECT_EQ(copy_from(buffer, stream), values_on_host());
    group.reduce_scatter(values, ReduceOp::max).wait();
    group.all_gather(values, stream).wait();
    group.broadcast(std::as_writable_bytes(values), 0);
    EXPECT_EQ(copy_from(buffer, stream), values_on_host());
  }
}

TEST_F(NcclOnAGpu, IsUsedForOneDeviceOnRequest) {
  const Communicator group = make_device_group({kNcclGpu}, Route::nccl).front();
  EXPECT_EQ(group.route(), "nccl");
  EXPECT_EQ(group.size(), 1);
}

TEST_F(NcclOnAGpu, IsRecordedAndReplayed) {
  const Communicator group = make_group_of_one();
  ASSERT_TRUE(group.can_be_recorded());
  device::Stream stream(kNcclGpu);
  const device::Buffer input = group.allocate(kNcclValues * sizeof(float));
  const device::Buffer sums = group.allocate(kNcclValues * sizeof(float));
  const auto work = [&] {
    device::copy(sums.data(), input.data(), input.size(), stream);
    group.all_reduce(sums.as<float>(), ReduceOp::sum, stream).wait(stream);
  };
  work();
  stream.synchronize();
  device::Recorder recorder(stream);
  group.set_recording(true);
  work();
  group.set_recording(false);
  device::Recording recording = recorder.finish();
  std::vector<float> values = values_on_host();
  for (int step = 0; step < 3; ++step) {
    std::ranges::reverse(values);
    copy_to(input, values, stream);
    recording.launch(stream);
    EXPECT_EQ(copy_from(sums, stream), values) << step;
  }
}

TEST_F(NcclOnAGpu, ReducesEveryType) {
  const Communicator group = make_group_of_one();
  const device::Buffer buffer = group.allocate(4096);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
    group.all_reduce(buffer.as<float>(), op).wait();
    group.all_reduce(buffer.as<double>(), op).wait();
    group.all_reduce(buffer.as<Float16>(), op).wait();
    group.all_reduce(buffer.as<BFloat16>(), op).wait();
    group.all_reduce(buffer.as<std::int32_t>(), op).wait();
    group.all_reduce(buffer.as<std::int64_t>(), op).wait();
  }
}

TEST_F(NcclOnAGpu, CanBeAborted) {
  const Communicator group = make_group_of_one();
  const device::Buffer buffer = group.allocate(kNcclValues * sizeof(float));
  Request request = group.all_reduce(buffer.as<float>());
  group.abort("enough");
  const std::string expected =
      "[all_reduce] expected all 1 members of the group; member 0 left: enough";
  EXPECT_EQ(error_of([&] { request.wait(); }), expected);
  EXPECT_EQ(error_of([&] { group.all_reduce(buffer.as<float>()).wait(); }), expected);
}

// The member that timed out is aborted, and its GPU can be used by another group.
TEST_F(NcclOnAGpu, NamesAMemberWhoseWaitTimesOut) {
  const std::vector<Communicator> all = make_in_process_group(3);
  EXPECT_EQ(error_of([&] {
              make_nccl({all[1].impl()}, {kNcclGpu}, make_in_process_group(1).front(),
                        {.join_limit = std::chrono::milliseconds(200)});
            }),
            fmt::format("[nccl] expected 3 members to join within 0.2 s; member 1 on {} (gpu:0) is "
                        "still waiting for others",
                        host_name()));
  const Communicator group = make_group_of_one();
  const device::Buffer buffer = group.allocate(kNcclValues * sizeof(float));
  group.all_reduce(buffer.as<float>()).wait();
}

TEST_F(NcclOnAGpu, BuffersMayOutliveTheGroup) {
  device::Stream stream(kNcclGpu);
  device::Buffer buffer;
  {
    const Communicator group = make_group_of_one();
    buffer = group.allocate(kNcclValues * sizeof(float));
    group.all_reduce(buffer.as<float>()).wait();
  }
  EXPECT_EQ(copy_from(buffer, stream), std::vector<float>(kNcclValues));
}

TEST_F(NcclOnAGpu, RejectsASecondMember) {
  std::vector<std::shared_ptr<GroupMember>> hosts;
  for (const Communicator& member : make_in_process_group(2)) hosts.push_back(member.impl());
  EXPECT_THAT(error_of([&] {
                make_nccl(hosts, {kNcclGpu, kNcclGpu}, make_in_process_group(1).front());
              }),
              StartsWith("[nccl] expected 2 members to join on member "));
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
