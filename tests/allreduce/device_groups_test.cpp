#include "lockstep/allreduce/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/allreduce/algorithm/nccl.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

const device::Device kCpu;
const device::Device kGpu = {device::DeviceKind::gpu, 0};

template <typename Call>
std::string error_of_category(ErrorCategory category, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), category);
    return error.what();
  }
  return "no error";
}

TEST(Nccl, HasVersionsOrTheWordAbsent) {
  EXPECT_THAT(nccl_built_version(), ::testing::AnyOf("absent", MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")));
  EXPECT_THAT(nccl_loaded_version(), ::testing::AnyOf("absent", MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")));
  EXPECT_TRUE(nccl_built_version() != "absent" || nccl_loaded_version() == "absent");
}

TEST(RequireNccl, SaysWhatThisBuildHas) {
  const std::string message = error_of_category(ErrorCategory::input, [] { require_nccl({kCpu, kCpu}); });
  EXPECT_THAT(message,
              StartsWith("[--allreduce] expected a build with NCCL and a GPU for each replica; this build has "));
  if (nccl_built_version() == "absent")
    EXPECT_THAT(message,
                HasSubstr("this build has no NCCL: install it with the CUDA toolkit, then configure and build"));
  else if (!device::gpu_is_available())
    EXPECT_THAT(message, HasSubstr("this build has NCCL " + nccl_built_version() +
                                   ", but there is no GPU: " + device::gpu_unavailable_reason()));
  else
    EXPECT_THAT(message, HasSubstr(", but the replicas are on the CPU: select GPUs with --devices"));
}

TEST(DeviceGroup, OnTheCpuIsOneOfThreads) {
  const std::vector<Communicator> group = make_device_group({kCpu, kCpu, kCpu});
  ASSERT_EQ(group.size(), 3U);
  EXPECT_EQ(group[2].rank(), 2);
  EXPECT_EQ(group[2].route(), "in-process");
}

TEST(DeviceGroup, RefusesNcclOnTheCpu) {
  EXPECT_THAT(error_of_category(ErrorCategory::input,
                                [] {
                                  make_device_group({kCpu, kCpu}, Route::nccl);
                                }),
              StartsWith("[--allreduce] expected a build with NCCL and a GPU for each replica; this build has "));
}

TEST(DeviceGroup, RefusesRoutesBetweenRanksWithinOneProcess) {
  EXPECT_EQ(error_of_category(ErrorCategory::input,
                              [] {
                                make_device_group({kCpu, kCpu}, Route::ring);
                              }),
            "[--allreduce] expected auto or in-process within one process, got ring");
  EXPECT_EQ(error_of_category(ErrorCategory::input,
                              [] {
                                make_device_group({kGpu, kGpu}, Route::shared_memory);
                              }),
            "[--allreduce] expected auto, in-process, nccl or staged between GPUs of one process, got shared-memory");
}

TEST(DeviceGroup, RefusesAMixture) {
  EXPECT_EQ(error_of_category(ErrorCategory::input,
                              [] {
                                make_device_group({kCpu, kGpu});
                              }),
            "[--allreduce] expected all replicas on the CPU or all on GPUs, got cpu:0, gpu:0");
}

TEST(DeviceGroup, RefusesAGpuThatIsNotThere) {
  const auto ask = [] { make_device_group({{device::DeviceKind::gpu, 99}}); };
  EXPECT_THAT(error_of_category(ErrorCategory::device, ask), StartsWith("[devices] expected gpu:99; "));
  EXPECT_THAT(error_of_category(ErrorCategory::device, ask), HasSubstr(device::gpu_unavailable_reason()));
}

TEST(Streams, OfTheCpuMayBeFollowedByEveryGroup) {
  run_ranks(3, Route::in_process, [](const Communicator& group) {
    device::Stream stream(device::Device{});
    std::vector<float> values(1000, 1.0F);
    Request request = group.all_reduce(std::span(values), ReduceOp::sum, stream);
    request.wait(stream);
    EXPECT_TRUE(request.test());
    EXPECT_EQ(values[999], 3.0F);
    group.reduce_scatter(std::span(values), ReduceOp::max, stream).wait(stream);
    group.all_gather(std::span(values), stream).wait(stream);
    EXPECT_EQ(values[0], 3.0F);
    EXPECT_EQ(values[999], 3.0F);
  });
}

}  // namespace
}  // namespace lockstep::allreduce
