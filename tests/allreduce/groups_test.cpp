#include "lockstep/allreduce/groups/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/base/error.h"
#include "lockstep/device/gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
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

TEST(ParseRoute, RoundTrips) {
  for (const RouteInfo& info : all_routes())
    EXPECT_EQ(parse_route(to_string(info.route)), info.route);
  EXPECT_EQ(to_string(Route::automatic), "auto");
  EXPECT_EQ(to_string(Route::in_process), "in-process");
}

TEST(ParseRoute, ListsTheNames) {
  try {
    parse_route("tree");
    FAIL() << "an unknown route was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_THAT(error.what(), StartsWith("[--allreduce] expected auto, in-process, "));
    EXPECT_THAT(error.what(), EndsWith(" or staged, got \"tree\""));
  }
}

TEST(RouteTable, HasTheNamesOfMessagesAndHelp) {
  EXPECT_EQ(route_names(&RouteInfo::process), "auto or in-process");
  EXPECT_EQ(route_names(&RouteInfo::shared_gpus), "auto or staged");
  const std::string help = describe_routes(&RouteInfo::is_for_cpus);
  EXPECT_THAT(help, StartsWith("auto, in-process (replicas of one process), "));
  EXPECT_THAT(help, Not(HasSubstr("nccl (")));
  for (const RouteInfo& info : all_routes())
    EXPECT_THAT(describe_routes([](const RouteInfo&) { return true; }),
                HasSubstr(std::string(info.name)));
}

TEST(InProcessGroup, NumbersItsMembers) {
  const std::vector<Communicator> group = make_in_process_group(3);
  ASSERT_EQ(group.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(group[static_cast<std::size_t>(rank)].rank(), rank);
    EXPECT_EQ(group[static_cast<std::size_t>(rank)].size(), 3);
    EXPECT_EQ(group[static_cast<std::size_t>(rank)].route(), "in-process");
  }
}

TEST(InProcessGroup, HasNoRouteForOneMember) {
  EXPECT_EQ(make_in_process_group(1).front().route(), "none");
}

TEST(InProcessGroup, RequiresAMember) { EXPECT_THROW(make_in_process_group(0), CheckFailure); }

TEST(InProcessGroup, RejectsRoutesThatDoNotConnectThreads) {
  EXPECT_EQ(make_in_process_group(2, Route::in_process).back().route(), "in-process");
  EXPECT_EQ(error_of([] { make_in_process_group(2, Route::ring); }),
            "[--allreduce] expected auto or in-process within one process, got ring");
}

TEST(InProcessGroup, RunsManyOperationsWithMoreMembersThanCores) {
  run_ranks(8, [](const Communicator& group) {
    std::vector<std::int64_t> values(64, 1);
    for (int step = 0; step < 300; ++step) {
      sum_and_wait(group, values);
      for (std::int64_t& value : values) {
        ASSERT_EQ(value, 8);
        value = 1;
      }
    }
  });
}

TEST(InProcessGroup, IsIndependentOfOtherGroupsInTheProcess) {
  const std::vector<Communicator> left = make_in_process_group(2);
  const std::vector<Communicator> right = make_in_process_group(3);
  std::vector<Communicator> all = left;
  all.insert(all.end(), right.begin(), right.end());
  run_members(all, [](const Communicator& group) {
    for (int step = 0; step < 200; ++step) {
      std::vector<float> values(500, static_cast<float>(group.size()));
      sum_and_wait(group, values);
      ASSERT_EQ(values[499], static_cast<float>(group.size() * group.size()));
    }
  });
}

TEST(InProcessGroup, FailureDoesNotAffectOtherGroups) {
  const std::vector<Communicator> broken = make_in_process_group(2);
  broken[0].abort("this group only");
  EXPECT_NE(error_of([&] { broken[1].barrier(); }), "");
  run_ranks(2,
            [](const Communicator& group) { EXPECT_EQ(error_of([&] { group.barrier(); }), ""); });
}

TEST(InProcessGroup, KeepsTheFirstReason) {
  const std::vector<Communicator> group = make_in_process_group(2);
  group[1].abort("first");
  group[0].abort("second");
  for (const Communicator& member : group)
    EXPECT_EQ(error_of([&] { member.barrier(); }),
              "[all_reduce] expected all 2 members of the group; member 1 left: first");
}

TEST(Nccl, HasVersionsOrTheWordAbsent) {
  EXPECT_THAT(nccl_built_version(),
              ::testing::AnyOf("absent", MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")));
  EXPECT_THAT(nccl_loaded_version(),
              ::testing::AnyOf("absent", MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+")));
  EXPECT_TRUE(nccl_built_version() != "absent" || nccl_loaded_version() == "absent");
}

TEST(RequireDevices, ReportsNcclSupportOfThisBuild) {
  const std::string message = error_of_category(ErrorCategory::input, [] {
    require_devices(Route::nccl, {kCpu, kCpu});
  });
  EXPECT_THAT(
      message,
      StartsWith(
          "[--allreduce] expected a build with NCCL and a GPU for each replica; this build has "));
  if (nccl_built_version() == "absent")
    EXPECT_THAT(
        message,
        HasSubstr(
            "this build has no NCCL: install it with the CUDA toolkit, then configure and build"));
  else if (!device::gpu_is_available())
    EXPECT_THAT(message, HasSubstr("this build has NCCL " + nccl_built_version() +
                                   ", but there is no GPU: " + device::gpu_unavailable_reason()));
  else
    EXPECT_THAT(message,
                HasSubstr(", but the replicas are on the CPU: select GPUs with --devices"));
}

TEST(DeviceGroup, IsInProcessOnTheCpu) {
  const std::vector<Communicator> group = make_device_group({kCpu, kCpu, kCpu});
  ASSERT_EQ(group.size(), 3U);
  EXPECT_EQ(group[2].rank(), 2);
  EXPECT_EQ(group[2].route(), "in-process");
}

TEST(DeviceGroup, RejectsNcclOnTheCpu) {
  EXPECT_THAT(
      error_of_category(ErrorCategory::input,
                        [] {
                          make_device_group({kCpu, kCpu}, Route::nccl);
                        }),
      StartsWith(
          "[--allreduce] expected a build with NCCL and a GPU for each replica; this build has "));
}

TEST(DeviceGroup, RejectsRoutesBetweenRanksWithinOneProcess) {
  EXPECT_EQ(error_of_category(ErrorCategory::input,
                              [] {
                                make_device_group({kCpu, kCpu}, Route::ring);
                              }),
            "[--allreduce] expected auto or in-process within one process, got ring");
  EXPECT_EQ(error_of_category(ErrorCategory::input,
                              [] {
                                make_device_group({kGpu, kGpu}, Route::shared_memory);
                              }),
            "[--allreduce] expected auto, in-process, nccl or staged between GPUs of one process, "
            "got shared-memory");
}

TEST(DeviceGroup, RejectsMixedDevices) {
  EXPECT_EQ(error_of_category(ErrorCategory::input,
                              [] {
                                make_device_group({kCpu, kGpu});
                              }),
            "[--allreduce] expected all replicas on the CPU or all on GPUs, got cpu:0, gpu:0");
}

TEST(DeviceGroup, RejectsAMissingGpu) {
  const auto make = [] { make_device_group({{device::DeviceKind::gpu, 99}}); };
  EXPECT_THAT(error_of_category(ErrorCategory::device, make),
              StartsWith("[devices] expected gpu:99; "));
  EXPECT_THAT(error_of_category(ErrorCategory::device, make),
              HasSubstr(device::gpu_unavailable_reason()));
}

TEST(Streams, EveryGroupAcceptsCpuStreams) {
  run_ranks(3, [](const Communicator& group) {
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
}  // namespace lockstep::inline v0::allreduce
