// What the route through shared memory promises beyond what all routes do.
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

TEST(SharedMemory, ReducesOwnAndForeignMemoryInOneCall) {
  run_member(make_mpi_group(MPI_COMM_WORLD, Route::shared_memory), [](const Communicator& group) {
    constexpr std::size_t kCount = 300'000;  // several pieces
    const device::Buffer own = group.allocate(kCount * sizeof(float));
    std::vector<float> foreign(kCount);
    // Odd ranks bring memory of the group, even ranks their own.
    const std::span<float> values = group.rank() % 2 == 1 ? own.as<float>() : std::span(foreign);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(group.rank() + static_cast<int>(i % 7));
    group.all_reduce(values).wait();
    const int n = group.size();
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(values[i], static_cast<float>(sum_of_ranks(n) + n * static_cast<int>(i % 7))) << i;
  });
}

TEST(SharedMemory, GivesMemoryBackAndTakesNew) {
  run_member(make_mpi_group(MPI_COMM_WORLD, Route::shared_memory), [](const Communicator& group) {
    for (int round = 1; round <= 20; ++round) {
      const device::Buffer buffer = group.allocate(100'000);
      const std::span<float> values = buffer.as<float>();
      for (const float value : values) ASSERT_EQ(value, 0.0f);
      values[values.size() - 1] = static_cast<float>(round);
      group.all_reduce(values).wait();
      ASSERT_EQ(values[values.size() - 1], static_cast<float>(round * group.size()));
    }
  });
}

TEST(SharedMemory, BuffersMayOutliveTheGroup) {
  device::Buffer buffer;
  {
    const Communicator group = make_mpi_group(MPI_COMM_WORLD, Route::shared_memory);
    buffer = group.allocate(1 << 20);
    group.barrier();
  }
  std::memset(buffer.data(), 1, buffer.size());
  EXPECT_EQ(buffer.as<std::uint8_t>()[buffer.size() - 1], 1);
}

TEST(SharedMemory, AddsInRankOrder) {
  run_member(make_mpi_group(MPI_COMM_WORLD, Route::shared_memory), [](const Communicator& group) {
    if (group.size() < 3) GTEST_SKIP() << "two ranks have one order";
    // (2^24 + 1) + 1 stays 2^24 in float32, while 2^24 + (1 + 1) does not: the order shows.
    const int last = group.size() - 1;
    std::vector<float> values(5000);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = group.rank() == (i % 2 == 0 ? 0 : last)   ? 16777216.0f
                  : group.rank() == 1                       ? 1.0f
                  : group.rank() == (i % 2 == 0 ? last : 0) ? 1.0f
                                                            : 0.0f;
    sum_and_wait(group, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], i % 2 == 0 ? 16777216.0f : 16777218.0f) << "element " << i;
  });
}

TEST(SharedMemory, IsWhatRanksOfOneNodeGet) {
  run_member(make_mpi_group(MPI_COMM_WORLD, Route::automatic),
             [](const Communicator& group) { EXPECT_EQ(group.route(), group.size() == 1 ? "none" : "shared-memory"); });
}

}  // namespace
}  // namespace lockstep::allreduce
