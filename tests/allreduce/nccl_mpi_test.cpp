// The contract of GPU routes between ranks beyond that of all routes, on simulated GPUs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/buffer.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/pretend_gpu.h"
#include "tests/support/pretend_nccl.h"
#include "tests/support/pretend_nodes.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::HasSubstr;

TEST(NcclBetweenRanks, NamesItsRoute) {
  const auto route_of = [](MPI_Comm ranks, Route route) {
    return make_device_group(ranks_of(ranks), pretend::gpus(1, world_rank()), route)
        .front()
        .route();
  };
  EXPECT_EQ(route_of(MPI_COMM_WORLD, Route::automatic), "nccl");
  EXPECT_EQ(route_of(MPI_COMM_WORLD, Route::nccl), "nccl");
  EXPECT_EQ(route_of(MPI_COMM_WORLD, Route::hierarchical), "nccl");
  EXPECT_EQ(route_of(MPI_COMM_SELF, Route::automatic), "none");
  EXPECT_EQ(route_of(MPI_COMM_SELF, Route::nccl), "nccl");
  EXPECT_EQ(make_device_group(ranks_of(), pretend::gpus(2, 2 * world_rank()), Route::hierarchical)
                .front()
                .route(),
            "nccl");
}

// ---- auto between nodes

struct Chosen {
  std::string route;
  std::string reason;
};

// Collective over all ranks, each of which is a node.
Chosen choose_between_nodes() {
  const pretend::RanksAreNodes nodes;
  Chosen chosen;
  const Communicator member = make_device_group(ranks_of(), pretend::gpus(1, world_rank()),
                                                Route::automatic, false, &chosen.reason)
                                  .front();
  chosen.route = member.route();
  run_member(member, [](const Communicator& group) {
    const device::Buffer buffer = group.allocate(400);
    std::ranges::fill(buffer.as<float>(), 1.0F);
    group.all_reduce(buffer.as<float>()).wait();
    EXPECT_EQ(buffer.as<float>()[99], static_cast<float>(group.size()));
  });
  return chosen;
}

TEST(NcclBetweenNodes, IsSelectedIfItReachesAll) {
  const Chosen chosen = choose_between_nodes();
  EXPECT_EQ(chosen.route, "nccl");
  EXPECT_EQ(chosen.reason, fmt::format("NCCL reaches all {}", world_size()));
}

TEST(NcclBetweenNodes, FallsBackToTheHostIfItFails) {
  pretend::answer_next_call(world_rank(), ncclSystemError);
  const Chosen chosen = choose_between_nodes();
  pretend::reset_faults();
  EXPECT_EQ(chosen.route, "staged + ring");
  EXPECT_EQ(chosen.reason,
            fmt::format("NCCL does not reach all {0}: [nccl] expected a first sum of {0} members "
                        "on member 0 (gpu:0 of {1}); NCCL returned \"unhandled system error\" (a "
                        "pretended one); set NCCL_DEBUG=WARN for details",
                        world_size(), host_name()));
}

TEST(NcclBetweenNodes, FallsBackToTheHostOnAllRanksIfOneLacksTheLibrary) {
  if (world_rank() == world_size() - 1) pretend::lose_library();
  const Chosen chosen = choose_between_nodes();
  pretend::reset_faults();
  EXPECT_EQ(chosen.route, "staged + ring");
  EXPECT_THAT(chosen.reason, HasSubstr("; [NCCL] expected a library; it is lost"));
}

// No rank decides alone, so the operations of the others end.
TEST(NcclBetweenRanks, FailsOnAllRanksIfOneIsNotReached) {
  const Communicator host = make_rank_group(ranks_of(), Route::ring);
  if (world_rank() == 1) pretend::lose_operations(1);
  EXPECT_EQ(error_of([&] {
              make_nccl({host.impl()}, pretend::gpus(1, world_rank()), ranks_of(),
                        {.join_limit = std::chrono::milliseconds(500)});
            }),
            fmt::format("[nccl] expected a first sum of {} members within 0.5 s; member 0 on {} "
                        "(gpu:0) is still waiting for others",
                        world_size(), host_name()));
  pretend::reset_faults();
}

TEST(NcclBetweenRanks, RejectsTwoRanksOnOneGpu) {
  EXPECT_EQ(
      error_of([] { make_device_group(ranks_of(), pretend::gpus(1), Route::nccl); }),
      fmt::format(
          "[devices] expected a GPU for each rank: let --devices auto choose, give each rank its "
          "own with --devices gpu:N or CUDA_VISIBLE_DEVICES, or allow this with --share-gpus; rank "
          "0 (gpu:0) and rank 1 (gpu:0) on {} both have GPU-00000000-0000-0000-0000-000000000000",
          host_name()));
}

TEST(NcclBetweenRanks, ReportsAMissingLibraryOnAllRanks) {
  const int last = world_size() - 1;
  if (world_rank() == last) pretend::lose_library();
  for (const Route route : {Route::nccl, Route::hierarchical})
    EXPECT_EQ(
        error_of([&] { make_device_group(ranks_of(), pretend::gpus(1, world_rank()), route); }),
        fmt::format("[nccl] expected NCCL on {}; [NCCL] expected a library; it is lost",
                    host_name()));
  pretend::reset_faults();
}

TEST(NcclBetweenRanks, RejectsMixedDevices) {
  const std::vector<device::Device> devices = {world_rank() == 0 ? device::Device{}
                                                                 : pretend::gpus(1).front()};
  EXPECT_EQ(
      error_of([&] { make_device_group(ranks_of(), devices, Route::automatic); }),
      fmt::format(
          "[--allreduce] expected all replicas on the CPU or all on GPUs, got 1 of {} on the CPU",
          world_size()));
}

TEST(NcclBetweenRanks, RejectsCpuRoutes) {
  EXPECT_EQ(error_of([] {
              make_device_group(ranks_of(), pretend::gpus(1, world_rank()), Route::shared_memory);
            }),
            "[--allreduce] expected auto, hierarchical, nccl or staged between GPUs of several "
            "ranks, got shared-memory");
}

TEST(NcclBetweenRanks, NamesTheRankWithoutAGpuOnAllRanks) {
  const int last = world_size() - 1;
  const int gpu = world_rank() == last ? 99 : world_rank();
  EXPECT_EQ(
      error_of([&] { make_device_group(ranks_of(), pretend::gpus(1, gpu), Route::nccl); }),
      fmt::format("[devices] expected the devices of rank {} on {}; [devices] expected gpu:99; "
                  "this process sees 8 GPUs",
                  last, host_name()));
}

TEST(NcclBetweenRanks, IsACpuGroupOnTheCpu) {
  run_member(make_device_group(ranks_of(), {device::Device{}}, Route::automatic).front(),
             [](const Communicator& group) {
               EXPECT_EQ(group.route(), "shared-memory");
               std::vector<float> values(10, 1.0F);
               sum_and_wait(group, values);
               EXPECT_EQ(values[9], static_cast<float>(group.size()));
             });
}

TEST(NcclBetweenRanks, NcclErrorsFailAllRanks) {
  const Communicator member =
      make_device_group(ranks_of(), pretend::gpus(1, world_rank()), Route::nccl).front();
  run_member(member, [&](const Communicator& group) {
    const device::Buffer buffer = group.allocate(400'000);
    if (group.rank() == 1) pretend::answer_next_call(1, ncclSystemError);
    const std::string message = error_of([&] { group.all_reduce(buffer.as<float>()).wait(); });
    EXPECT_THAT(message, HasSubstr(" on member 1 (gpu:1 of "));
    EXPECT_THAT(message, HasSubstr("; NCCL returned \"unhandled system error\""));
    EXPECT_EQ(error_of([&] { group.barrier(); }), message);
  });
  pretend::reset_faults();
}

TEST(NcclBetweenRanks, LeavingRankReleasesRanksThatWaitOnTheirGpus) {
  const Communicator member =
      make_device_group(ranks_of(), pretend::gpus(1, world_rank()), Route::nccl).front();
  run_member(member, [&](const Communicator& group) {
    const device::Buffer buffer = group.allocate(400'000);
    if (group.rank() == 1) pretend::lose_operations(1);
    const std::string message = error_of([&] {
      Request request = group.all_reduce(buffer.as<float>());
      if (group.rank() == 1) group.abort("out of memory");
      request.wait();
      group.barrier();
    });
    EXPECT_EQ(message,
              fmt::format(
                  "[all_reduce] expected all {} members of the group; member 1 left: out of memory",
                  world_size()));
  });
  pretend::reset_faults();
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
