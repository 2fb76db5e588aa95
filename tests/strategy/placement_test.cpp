#include "strategy/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu.h"

namespace lockstep::strategy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Placement on_cpu(int replica, int rank) {
  return {.replica = replica, .rank = rank, .host = "a", .device = "cpu:0", .cores = 4, .processors = 8};
}

Placement on_gpu(int replica, int rank, int gpu_node, std::vector<int> core_nodes) {
  return {.replica = replica,
          .rank = rank,
          .node = rank / 2,
          .host = rank < 2 ? "a" : "machine-b",
          .device = "gpu:0",
          .cores = 4,
          .gpu = {"NVIDIA H200", "GPU-0123abcd-4567-89ab-cdef-0123456789ab", gpu_node, std::size_t{140} << 30},
          .processors = 8,
          .numa_nodes = std::move(core_nodes)};
}

TEST(PlacementTable, ListsReplicasOnTheCpu) {
  EXPECT_EQ(placement_table({on_cpu(0, 0), on_cpu(1, 0)}),
            "replica  rank  host  device  cores\n"
            "      0     0  a     cpu:0       4\n"
            "      1     0  a     cpu:0       4\n");
}

TEST(PlacementTable, TellsWhichGpuItIs) {
  EXPECT_EQ(placement_table({on_gpu(0, 0, 1, {0}), on_gpu(1, 2, -1, {})}),
            "replica  rank  host       device  cores  GPU          UUID          NUMA     GiB\n"
            "      0     0  a          gpu:0       4  NVIDIA H200  GPU-0123abcd     1   140.0\n"
            "      1     2  machine-b  gpu:0       4  NVIDIA H200  GPU-0123abcd     -   140.0\n");
}

TEST(Placements, AreReadAsTheyWereSent) {
  const std::vector<Placement> sent = {on_gpu(3, 1, 1, {0, 2}), on_cpu(4, 2)};
  const std::vector<Placement> read = parse_placements(to_text(sent));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].replica, 3);
  EXPECT_EQ(read[0].gpu.uuid, sent[0].gpu.uuid);
  EXPECT_EQ(read[0].gpu.bytes, sent[0].gpu.bytes);
  EXPECT_THAT(read[0].numa_nodes, ElementsAre(0, 2));
  EXPECT_TRUE(read[0].is_on_gpu());
  EXPECT_FALSE(read[1].is_on_gpu());
  EXPECT_EQ(placement_table(read), placement_table(sent));
}

TEST(DescribePlace, KnowsThisProcess) {
  const Placement place = describe_place({});
  EXPECT_EQ(place.host, device::host_name());
  EXPECT_EQ(place.device, "cpu:0");
  EXPECT_EQ(place.processors, device::available_cores());
  EXPECT_FALSE(place.is_on_gpu());
}

TEST(PlacementWarnings, SayNothingOfWhatIsWell) {
  EXPECT_THAT(placement_warnings({on_cpu(0, 0), on_gpu(1, 1, 1, {0, 1})}, 8), IsEmpty());
  EXPECT_THAT(placement_warnings({on_gpu(0, 0, -1, {0}), on_gpu(1, 1, 1, {})}, 1), IsEmpty()) << "nobody knows";
}

TEST(PlacementWarnings, NameProcessesWithFewerCoresThanDataThreads) {
  Placement bound = on_cpu(1, 1);
  bound.processors = 1;
  EXPECT_THAT(
      placement_warnings({on_cpu(0, 0), bound}, 4),
      ElementsAre("rank 1 on a may run on 1 of the host's cores, fewer than --data-threads 4: start mpirun with "
                  "--bind-to none, or --map-by slot:PE=5"));
}

TEST(PlacementWarnings, NameProcessesFarFromTheirGpu) {
  EXPECT_THAT(placement_warnings({on_gpu(0, 0, 0, {0}), on_gpu(1, 1, 1, {0}), on_gpu(2, 1, 1, {0})}, 1),
              ElementsAre("rank 1 on a runs on cores of NUMA node 0 and its gpu:0 is near node 1: start mpirun with "
                          "--bind-to none, or bind the rank there with numactl --cpunodebind=1"));
  EXPECT_THAT(placement_warnings({on_gpu(0, 1, 1, {0}), on_gpu(1, 2, 1, {0, 2})}, 1),
              ElementsAre("2 ranks, rank 1 on a the first of them runs on cores of NUMA node 0 and its gpu:0 is near "
                          "node 1: start mpirun with --bind-to none, or bind the rank there with numactl "
                          "--cpunodebind=1"));
}

}  // namespace
}  // namespace lockstep::strategy
