#include "lockstep/job/placement/device_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/device/device_list.h"
#include "lockstep/device/gpu.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::job {
namespace {

using allreduce::error_of;
using device::Device;
using device::DeviceKind;

DeviceClaim claim(int node, const std::string& devices, std::vector<std::string> gpus) {
  DeviceClaim claim{node, node == 0 ? "a" : "b", devices, std::move(gpus), ""};
  if (claim.gpus.empty()) claim.no_gpu = "no driver answers";
  return claim;
}

std::vector<DeviceClaim> ranks_of_node(std::size_t ranks, const std::string& devices,
                                       std::vector<std::string> gpus) {
  return std::vector<DeviceClaim>(ranks, claim(0, devices, std::move(gpus)));
}

// "gpu:0,gpu:1 gpu:2": the devices of each rank.
std::string shares_of(const std::vector<DeviceClaim>& claims, bool share_gpus = false) {
  std::string text;
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    if (rank > 0) text += ' ';
    std::string devices;
    for (const Device& device : share_of_devices(claims, static_cast<int>(rank), share_gpus))
      devices += (devices.empty() ? "" : ",") + to_string(device);
    text += devices;
  }
  return text;
}

struct Share {
  std::string name;
  std::vector<DeviceClaim> claims;
  std::string devices;
};

class ShareOfDevices : public ::testing::TestWithParam<Share> {};

TEST_P(ShareOfDevices, MatchesTheTable) {
  EXPECT_EQ(shares_of(GetParam().claims), GetParam().devices);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, ShareOfDevices,
    ::testing::Values(
        Share{"one_process_gets_all", ranks_of_node(1, "auto", {"A", "B"}), "gpu:0,gpu:1"},
        Share{"one_process_gets_all_by_name", ranks_of_node(1, "gpu:all", {"A", "B"}),
              "gpu:0,gpu:1"},
        Share{"no_gpu_is_the_cpu", ranks_of_node(2, "auto", {}), "cpu:0 cpu:0"},
        Share{"a_gpu_for_each_rank", ranks_of_node(3, "auto", {"A", "B", "C"}),
              "gpu:0 gpu:1 gpu:2"},
        Share{"one_each_of_more", ranks_of_node(2, "auto", {"A", "B", "C"}), "gpu:0 gpu:1"},
        Share{"an_equal_share_each", ranks_of_node(2, "gpu:all", {"A", "B", "C", "D"}),
              "gpu:0,gpu:1 gpu:2,gpu:3"},
        Share{"each_node_separately",
              {claim(0, "auto", {"A", "B"}), claim(0, "auto", {"A", "B"}),
               claim(1, "auto", {"C", "D"})},
              "gpu:0 gpu:1 gpu:0,gpu:1"},
        Share{"launcher_shows_each_rank_one",
              {claim(0, "auto", {"A"}), claim(0, "auto", {"B"}), claim(0, "gpu:all", {"C"})},
              "gpu:0 gpu:0 gpu:0"},
        Share{"launcher_shows_each_rank_two",
              {claim(0, "gpu:all", {"A", "B"}), claim(0, "gpu:all", {"C", "D"})},
              "gpu:0,gpu:1 gpu:0,gpu:1"}),
    [](const auto& share) { return share.param.name; });

TEST(ShareOfDevices, RejectsMoreRanksThanGpus) {
  const std::vector<DeviceClaim> claims = ranks_of_node(3, "auto", {"A", "B"});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(error_of([&] { share_of_devices(claims, rank, false); }),
              "[devices] expected a GPU for each rank of a node: start fewer ranks there, or let "
              "them share with --share-gpus; the 3 ranks on a see 2");
  EXPECT_EQ(shares_of(claims, true), "gpu:0 gpu:1 gpu:0");
}

TEST(ShareOfDevices, RejectsAllGpusIfTheyDoNotDivideEvenly) {
  EXPECT_EQ(
      error_of([] {
        share_of_devices(ranks_of_node(2, "gpu:all", {"A", "B", "C"}), 0, false);
      }),
      "[devices] expected GPUs that the ranks of a node divide evenly for gpu:all: start a "
      "different number of ranks, or use auto to give each rank one GPU; the 2 ranks on a see 3");
}

TEST(ShareOfDevices, RejectsAllGpusWithoutAGpu) {
  try {
    share_of_devices({claim(0, "gpu:all", {"A"}), claim(1, "gpu:all", {})}, 1, false);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    EXPECT_STREQ(error.what(), "[devices] expected a GPU on b for gpu:all; no driver answers");
  }
}

TEST(ChooseDevices, UsesAnExplicitList) {
  const Session session(0, nullptr);
  EXPECT_EQ(choose_devices(session, "cpu:0,cpu:0"), std::vector<Device>(2));
  EXPECT_EQ(choose_devices(session, "auto"), device::parse_devices("auto"));
}

TEST(ChooseDevices, ReportsWhyThereIsNoGpu) {
  if (device::gpu_is_available()) GTEST_SKIP() << "this machine has one";
  const Session session(0, nullptr);
  EXPECT_EQ(error_of([&] { choose_devices(session, "gpu:0"); }),
            "[devices] expected gpu:0; " + device::gpu_unavailable_reason());
}

}  // namespace
}  // namespace lockstep::inline v0::job
