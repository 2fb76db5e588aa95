#include "lockstep/job/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::job {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Placement on_cpu(int replica, int rank) {
  return {.replica = replica,
          .rank = rank,
          .host = "a",
          .device = "cpu:0",
          .cores = 4,
          .processors = 8};
}

Placement on_gpu(int replica, int rank, int gpu_node, std::vector<int> core_nodes) {
  return {.replica = replica,
          .rank = rank,
          .node = rank / 2,
          .host = rank < 2 ? "a" : "machine-b",
          .device = "gpu:0",
          .cores = 4,
          .gpu = {"NVIDIA H200", "GPU-0123abcd-4567-89ab-cdef-0123456789ab", gpu_node,
                  std::size_t{140} << 30},
          .processors = 8,
          .numa_nodes = std::move(core_nodes)};
}

TEST(PlacementTable, ListsReplicasOnTheCpu) {
  EXPECT_EQ(placement_table({on_cpu(0, 0), on_cpu(1, 0)}),
            "replica  rank  host  local  device  cores  interface\n"
            "      0     0  a         0  cpu:0       4  -\n"
            "      1     0  a         0  cpu:0       4  -\n");
}

TEST(PlacementTable, IdentifiesTheGpu) {
  EXPECT_EQ(placement_table({on_gpu(0, 0, 1, {0}), on_gpu(1, 2, -1, {})}),
            "replica  rank  host       local  device  cores  interface  GPU          UUID          "
            "NUMA     GiB\n"
            "      0     0  a              0  gpu:0       4  -          NVIDIA H200  GPU-0123abcd  "
            "   1   140.0\n"
            "      1     2  machine-b      0  gpu:0       4  -          NVIDIA H200  GPU-0123abcd  "
            "   -   140.0\n");
}

TEST(PlacementTable, ListsLocalRanksAndTheInterfaceToOtherNodes) {
  Placement other = on_cpu(1, 1);
  other.local_rank = 3;
  other.interface = "enp65s0f0np0";
  EXPECT_EQ(placement_table({on_cpu(0, 0), other}),
            "replica  rank  host  local  device  cores  interface\n"
            "      0     0  a         0  cpu:0       4  -\n"
            "      1     1  a         3  cpu:0       4  enp65s0f0np0\n");
}

TEST(Placements, RoundTrip) {
  std::vector<Placement> sent = {on_gpu(3, 1, 1, {0, 2}), on_cpu(4, 2)};
  sent[1].local_rank = 1;
  sent[1].processor_list = "0-7";
  sent[1].interface = "eth0";
  const std::vector<Placement> read = nlohmann::json(sent).get<std::vector<Placement>>();
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].replica, 3);
  EXPECT_EQ(read[0].gpu.uuid, sent[0].gpu.uuid);
  EXPECT_EQ(read[0].gpu.bytes, sent[0].gpu.bytes);
  EXPECT_THAT(read[0].numa_nodes, ElementsAre(0, 2));
  EXPECT_TRUE(read[0].is_on_gpu());
  EXPECT_FALSE(read[1].is_on_gpu());
  EXPECT_EQ(read[1].local_rank, 1);
  EXPECT_EQ(read[1].processor_list, "0-7");
  EXPECT_EQ(read[1].interface, "eth0");
  EXPECT_EQ(placement_table(read), placement_table(sent));
}

TEST(DescribePlace, DescribesThisProcess) {
  const Placement place = describe_place({});
  EXPECT_EQ(place.host, host_name());
  EXPECT_EQ(place.device, "cpu:0");
  EXPECT_EQ(place.processors, available_cores());
  EXPECT_FALSE(place.processor_list.empty());
  EXPECT_FALSE(place.is_on_gpu());
}

TEST(PlacementWarnings, AreEmptyForAGoodPlacement) {
  EXPECT_THAT(placement_warnings({on_cpu(0, 0), on_gpu(1, 1, 1, {0, 1})}, 8), IsEmpty());
  EXPECT_THAT(placement_warnings({on_gpu(0, 0, -1, {0}), on_gpu(1, 1, 1, {})}, 1), IsEmpty())
      << "the NUMA nodes are unknown";
}

TEST(PlacementWarnings, NameProcessesWithFewerCoresThanDataThreads) {
  Placement bound = on_cpu(1, 1);
  bound.processors = bound.cores = 1;
  EXPECT_THAT(placement_warnings({on_cpu(0, 0), bound}, 4),
              ElementsAre("rank 1 on a may run on 1 of the host's cores, fewer than --data-threads "
                          "4: start mpirun with --bind-to none, or --map-by slot:PE=5"));
}

/// A replica whose rank, on node `node`, may run only on the processor `list`.
Placement on_core(int replica, int rank, int node, const std::string& list) {
  Placement place = on_cpu(replica, rank);
  place.node = node;
  place.cores = place.processors = 1;
  place.processor_list = list;
  return place;
}

TEST(PlacementWarnings, NameCoresWithTooManyKernelThreads) {
  const std::string end =
      ": start fewer ranks or replicas there, or, if they are bound, start mpirun with --bind-to "
      "none";
  EXPECT_THAT(
      placement_warnings({on_core(0, 0, 0, "0"), on_core(1, 1, 0, "1"), on_core(2, 2, 0, "1")}, 1),
      ElementsAre("rank 1 on a and 1 more: 2 compute threads on 1 of the host's cores" + end));
  EXPECT_THAT(
      placement_warnings({on_core(0, 0, 0, "0"), on_core(1, 0, 0, "0"), on_core(2, 0, 0, "0")}, 1),
      ElementsAre("rank 0 on a: 3 compute threads on 1 of the host's cores" + end));
  EXPECT_THAT(placement_warnings({on_core(0, 0, 0, "0"), on_core(1, 1, 1, "0")}, 1), IsEmpty())
      << "on two nodes";
}

TEST(PlacementWarnings, NameProcessesFarFromTheirGpu) {
  EXPECT_THAT(
      placement_warnings({on_gpu(0, 0, 0, {0}), on_gpu(1, 1, 1, {0}), on_gpu(2, 1, 1, {0})}, 1),
      ElementsAre(
          "the cores of rank 1 on a are on NUMA node 0, but gpu:0 is near node 1: start mpirun "
          "with --bind-to none, or bind the rank there with numactl --cpunodebind=1"));
  EXPECT_THAT(
      placement_warnings({on_gpu(0, 1, 1, {0}), on_gpu(1, 2, 1, {0, 2})}, 1),
      ElementsAre(
          "the cores of rank 1 on a and 1 more are on NUMA node 0, but gpu:0 is near node 1: start "
          "mpirun with --bind-to none, or bind the rank there with numactl --cpunodebind=1"));
}

}  // namespace
}  // namespace lockstep::inline v0::job
