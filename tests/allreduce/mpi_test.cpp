// The contract of groups of ranks beyond that of all groups.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <span>
#include <string>

#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/groups/selection.h"
#include "lockstep/allreduce/groups/topology.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/base/error.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

TEST(RankGroups, NamesItsRoute) {
  EXPECT_EQ(make_rank_group(ranks_of(), Route::automatic).route(), "shared-memory");
  for (const RouteInfo& info : all_routes()) {
    if (!info.ranks || info.route == Route::automatic) continue;
    EXPECT_EQ(make_rank_group(ranks_of(), info.route).route(), info.name);
  }
}

TEST(MultiWorkerGroup, NamesItsRoute) {
  EXPECT_EQ(make_multi_worker_group(ranks_of(), 2, Route::automatic)[0].route(),
            "in-process + shared-memory");
  EXPECT_EQ(make_multi_worker_group(ranks_of(), 2, Route::mpi)[1].route(), "in-process + mpi");
  EXPECT_EQ(make_multi_worker_group(ranks_of(), 1, Route::ring)[0].route(), "ring");
}

// The unit tests cover these groups of threads.
TEST(RankGroups, HasNoRouteForOneRank) {
  for (const RouteInfo& info : all_routes()) {
    EXPECT_EQ(make_rank_group(ranks_of(MPI_COMM_SELF), info.route).route(), "none");
    EXPECT_EQ(make_multi_worker_group(ranks_of(MPI_COMM_SELF), 1, info.route)[0].route(), "none");
    EXPECT_EQ(make_multi_worker_group(ranks_of(MPI_COMM_SELF), 2, info.route)[1].route(),
              info.process && info.route != Route::automatic ? info.name : "in-process");
  }
}

TEST(RankGroups, RejectsTheInProcessRoute) {
  try {
    make_rank_group(ranks_of(), Route::in_process);
    FAIL() << "in-process was accepted between ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_EQ(error.what(),
              fmt::format("[--allreduce] expected {} between ranks, got in-process for {} ranks",
                          route_names(&RouteInfo::ranks), world_size()));
  }
}

TEST(SelectRoute, SelectsSharedMemoryWithinANodeWithoutMeasuring) {
  const Selection selection = select_route(ranks_of());
  EXPECT_EQ(selection.route, Route::shared_memory);
  EXPECT_EQ(selection.reason, fmt::format("{} ranks on one node", world_size()));
}

TEST(Topology, HasRoutesThatAutomaticDoesNotSelect) {
  const Topology topology(ranks_of());
  EXPECT_THAT(topology.candidates(), ::testing::ElementsAre(Route::shared_memory, Route::ring));
  EXPECT_EQ(topology.routes().front(), Route::shared_memory);
  EXPECT_THAT(topology.routes(), ::testing::Contains(Route::mpi));
  EXPECT_THAT(topology.routes(), ::testing::Not(::testing::Contains(Route::hierarchical)))
      << "one node";
}

TEST(SelectRoute, ReusesTheRememberedRouteIfPossible) {
  EXPECT_EQ(select_route(ranks_of(), Route::ring).route, Route::ring);
  // A training that began on several nodes and continues on one.
  EXPECT_EQ(select_route(ranks_of(), Route::hierarchical).route, Route::shared_memory);
}

TEST(RankGroups, DoesNotUseTheCallersCommunicator) {
  const int rank = world_rank();
  run_member(make_rank_group(ranks_of(), Route::ring), [&](const Communicator& group) {
    const int right = (rank + 1) % world_size();
    const int left = (rank + world_size() - 1) % world_size();
    int from_left = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(&from_left, 1, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    std::vector<float> values(100'000, 1.0f);
    sum_and_wait(group, values);
    MPI_Send(&rank, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT_EQ(from_left, left);
    EXPECT_EQ(values.back(), static_cast<float>(world_size()));
  });
}

TEST(RankGroups, AcceptsASubsetOfTheRanks) {
  const int rank = world_rank();
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  {
    const Communicator group = make_rank_group(ranks_of(half), Route::ring);
    MPI_Comm_free(&half);  // the group has a duplicate
    run_member(group, [&](const Communicator& member) {
      std::vector<std::int64_t> ranks = {rank};
      sum_and_wait(member, ranks);
      std::int64_t expected = 0;
      for (int other = rank % 2; other < world_size(); other += 2) expected += other;
      EXPECT_EQ(ranks[0], expected);
    });
  }
}

TEST(RankGroups, AreMadeFromSomeRanks) {
  const Communicator all = ranks_of();
  const std::vector<int> backwards = {world_size() - 1, 0};
  const std::optional<Communicator> two = make_subset(all, backwards);
  ASSERT_EQ(two.has_value(), world_rank() == 0 || world_rank() == world_size() - 1);
  if (two) {
    EXPECT_EQ(two->size(), 2);
    EXPECT_EQ(two->rank(), world_rank() == 0 ? 1 : 0);
    run_member(make_rank_group(*two, Route::ring), [](const Communicator& member) {
      std::vector<std::int64_t> ranks = {world_rank()};
      sum_and_wait(member, ranks);
      EXPECT_EQ(ranks[0], world_size() - 1);
    });
  }
  EXPECT_EQ(node_of(all, 0), node_of(all, world_size() - 1));
  EXPECT_EQ(ranks_of_node(all).rank(), world_rank());
}

TEST(MultiWorkerGroup, NumbersReplicasOfRankAfterRank) {
  // Rank r drives r + 1 replicas: the first of rank r is number r (r + 1) / 2.
  const int rank = world_rank();
  const std::vector<Communicator> group =
      make_multi_worker_group(ranks_of(), rank + 1, Route::automatic);
  ASSERT_EQ(group.size(), static_cast<std::size_t>(rank + 1));
  for (int local = 0; local <= rank; ++local) {
    EXPECT_EQ(group[static_cast<std::size_t>(local)].rank(), rank * (rank + 1) / 2 + local);
    EXPECT_EQ(group[static_cast<std::size_t>(local)].size(), world_size() * (world_size() + 1) / 2);
  }
}

TEST(Ring, IsBitwiseEqualForAnySegments) {
  run_member(Communicator(make_ring(transport_of())), [](const Communicator& usual) {
    const Communicator fine(make_ring(transport_of(), {.segment_bytes = 576}));
    const Communicator between_nodes(make_ring(transport_of(), kRingBetweenNodes));
    std::vector<float> first(50'001);
    for (std::size_t i = 0; i < first.size(); ++i)
      first[i] = std::cos(static_cast<float>(i) * 0.37F + static_cast<float>(usual.rank()));
    std::vector<float> second = first;
    std::vector<float> third = first;
    sum_and_wait(usual, first);
    sum_and_wait(fine, second);
    sum_and_wait(between_nodes, third);
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(first.data(), third.data(), first.size() * sizeof(float)), 0);
  });
}

TEST(Ring, RejectsSegmentsThatSplitACacheLine) {
  EXPECT_THROW(make_ring(transport_of(), {.segment_bytes = 100}), CheckFailure);
  EXPECT_THROW(make_ring(transport_of(), {.segment_bytes = 0}), CheckFailure);
}

/// Number of mappings of shared memory in this process.
std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:lockstep") != std::string::npos;
  return count;
}

TEST(SharedMemory, FreesAndReallocatesMemory) {
  run_member(make_rank_group(ranks_of(), Route::shared_memory), [](const Communicator& group) {
    std::ptrdiff_t first = 0;
    for (int round = 1; round <= 20; ++round) {
      const device::Buffer buffer = group.allocate(100'000);
      const std::span<float> values = buffer.as<float>();
      for (const float value : values) ASSERT_EQ(value, 0.0f);
      values[values.size() - 1] = static_cast<float>(round);
      group.all_reduce(values).wait();
      ASSERT_EQ(values[values.size() - 1], static_cast<float>(round * group.size()));
      if (round == 1) first = mappings();
      ASSERT_LE(mappings(), first) << "memory of other ranks, which they have freed";
    }
  });
}

TEST(GatherTexts, ReturnsTheTextsInRankOrder) {
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
  };
  const std::vector<std::string> texts = gather_texts(ranks_of(), text_of(world_rank()));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(world_size()));
  for (int rank = 0; rank < world_size(); ++rank)
    EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
  EXPECT_EQ(gather_texts(make_in_process_group(1).front(), "alone"),
            std::vector<std::string>{"alone"});
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
