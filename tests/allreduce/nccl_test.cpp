// Memory and failures of the route nccl, with simulated GPUs and a simulated NCCL.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/pretend_nccl.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NcclGroup : public ::testing::Test {
 protected:
  ~NcclGroup() override { pretend::reset_faults(); }
};

std::string place_of(int member) {
  return fmt::format("member {0} (gpu:{0} of {1})", member, host_name());
}

std::vector<std::shared_ptr<GroupMember>> hosts_of(int members) {
  std::vector<std::shared_ptr<GroupMember>> hosts;
  for (const Communicator& member : make_in_process_group(members)) hosts.push_back(member.impl());
  return hosts;
}

const std::string kAdvice = "; set NCCL_DEBUG=WARN for details";

TEST_F(NcclGroup, IsUsedForGpusOfOneProcess) {
  for (const Route route : {Route::automatic, Route::in_process, Route::nccl}) {
    const std::vector<Communicator> members = make_device_group(pretend::gpus(2), route);
    EXPECT_EQ(members[1].route(), "nccl");
    EXPECT_TRUE(members[1].overlaps());
    EXPECT_EQ(members[1].allocate(64).device(), pretend::gpus(2)[1]);
  }
}

TEST_F(NcclGroup, ReducesAnyMemoryOfItsGpus) {
  run_members(make_device_group(pretend::gpus(3)), [](const Communicator& group) {
    const device::Buffer own = group.allocate(40'000);
    float* other = static_cast<float*>(pretend::allocate_on_gpu(40'000));
    const std::span<float> values =
        group.rank() == 1 ? own.as<float>().subspan(16, 9984) : std::span(other, 9984);
    std::ranges::fill(values, static_cast<float>(group.rank()));
    group.all_reduce(values).wait();
    for (const float value : values) ASSERT_EQ(value, 3.0F);
    EXPECT_EQ(own.as<float>()[15], 0.0F);
    group.barrier();
    pretend::free_on_gpu(other);
  });
}

TEST_F(NcclGroup, NcclErrorsFailAllMembers) {
  const std::string expected = "[nccl] expected ncclAllReduce on " + place_of(1) +
                               "; NCCL returned \"unhandled system error\" (a pretended one)" +
                               kAdvice;
  run_members(make_device_group(pretend::gpus(3)), [&](const Communicator& group) {
    const device::Buffer buffer = group.allocate(4000);
    group.barrier();
    if (group.rank() == 1) pretend::answer_next_call(1, ncclSystemError);
    EXPECT_EQ(error_of([&] { group.all_reduce(buffer.as<float>()).wait(); }), expected);
    EXPECT_EQ(error_of([&] { group.all_reduce(buffer.as<float>()).wait(); }), expected);
    EXPECT_EQ(error_of([&] { group.barrier(); }), expected);
  });
}

TEST_F(NcclGroup, AsynchronousErrorsFailAllMembers) {
  run_members(make_device_group(pretend::gpus(3)), [&](const Communicator& group) {
    const device::Buffer buffer = group.allocate(4000);
    group.barrier();
    if (group.rank() == 0) pretend::lose_operations(2);
    group.barrier();
    Request request = group.all_reduce(buffer.as<float>());
    group.barrier();
    if (group.rank() == 0) pretend::break_communicators(1, ncclRemoteError);
    const std::string message = error_of([&] {
      request.wait();
      // The member whose operation was lost does not wait in it.
      group.barrier();
      group.barrier();
    });
    EXPECT_EQ(message, "[nccl] expected NCCL operations to continue on " + place_of(1) +
                           "; NCCL returned \"remote process exited or there was a network error\" "
                           "(a pretended one)" +
                           kAdvice);
  });
}

TEST_F(NcclGroup, LeavingMemberReleasesMembersThatWaitOnTheirGpus) {
  run_members(make_device_group(pretend::gpus(3)), [&](const Communicator& group) {
    const device::Buffer buffer = group.allocate(4000);
    group.barrier();
    if (group.rank() == 0) pretend::lose_operations(2);
    group.barrier();
    EXPECT_EQ(error_of([&] {
                Request request = group.all_reduce(buffer.as<float>());
                if (group.rank() == 2) group.abort("out of memory");
                request.wait();
                group.barrier();
              }),
              "[all_reduce] expected all 3 members of the group; member 2 left: out of memory");
  });
}

TEST_F(NcclGroup, LeavingMemberReleasesStreams) {
  run_members(make_device_group(pretend::gpus(2)), [&](const Communicator& group) {
    const device::Buffer buffer = group.allocate(4000);
    device::Stream compute(pretend::gpus(1, group.rank()).front());
    group.barrier();
    if (group.rank() == 0) pretend::lose_operations(1);
    group.barrier();
    group.all_reduce(buffer.as<float>(), ReduceOp::sum, compute).wait(compute);
    group.barrier();
    if (group.rank() == 1) group.abort("gone");
    compute.synchronize();
    EXPECT_THAT(error_of([&] { group.barrier(); }), HasSubstr("member 1 left: gone"));
  });
}

TEST_F(NcclGroup, IsUsedForOneGpuOnRequest) {
  EXPECT_EQ(make_device_group(pretend::gpus(1), Route::nccl).front().route(), "nccl");
  EXPECT_EQ(make_device_group(pretend::gpus(1)).front().route(), "none");
}

TEST_F(NcclGroup, IsNotUsedForReplicasOfOneGpu) {
  const std::vector<device::Device> one_gpu(2, pretend::gpus(1).front());
  EXPECT_EQ(make_device_group(one_gpu, Route::nccl).front().route(), "in-gpu");
}

TEST_F(NcclGroup, RejectsTwoMembersOnOneGpu) {
  const std::vector<device::Device> twice(2, pretend::gpus(1).front());
  EXPECT_EQ(error_of([&] { make_nccl(hosts_of(2), twice, make_in_process_group(1).front()); }),
            fmt::format("[nccl] expected 2 members to join on member 0 (gpu:0 of {}); NCCL "
                        "returned \"invalid usage\" (a pretended one){}",
                        host_name(), kAdvice));
}

TEST_F(NcclGroup, NamesAMemberThatFailsInTheFirstSum) {
  pretend::answer_next_call(1, ncclSystemError);
  EXPECT_EQ(error_of([] { make_device_group(pretend::gpus(3)); }),
            "[nccl] expected a first sum of 3 members on " + place_of(1) +
                "; NCCL returned \"unhandled system error\" (a pretended one)" + kAdvice);
}

TEST_F(NcclGroup, NamesAMemberWhoseFirstSumDoesNotReachTheOthers) {
  pretend::lose_operations(1);
  EXPECT_EQ(error_of([] {
              make_nccl(hosts_of(2), pretend::gpus(2), make_in_process_group(1).front(),
                        {.join_limit = 200ms});
            }),
            fmt::format("[nccl] expected a first sum of 2 members within 0.2 s; member 0 on {} "
                        "(gpu:0) is still waiting for others",
                        host_name()));
}

TEST_F(NcclGroup, DoesNotWaitForAnAbortThatHangs) {
  pretend::hang_aborts(0);
  {
    const auto group = make_nccl(hosts_of(2), pretend::gpus(2), make_in_process_group(1).front(),
                                 {.end_limit = 20ms});
    Communicator(group.front()).abort("enough");
  }
  pretend::reset_faults();
  while (pretend::unfinished_aborts() > 0) std::this_thread::yield();
}

TEST_F(NcclGroup, ReportsAMissingLibrary) {
  pretend::lose_library();
  EXPECT_EQ(nccl_loaded_version(), "absent");
  EXPECT_EQ(error_of([] { make_device_group(pretend::gpus(2)); }),
            fmt::format("[nccl] expected NCCL on {}; [NCCL] expected a library; it is lost",
                        host_name()));
  pretend::reset_faults();
  EXPECT_EQ(nccl_loaded_version(), nccl_built_version());
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
