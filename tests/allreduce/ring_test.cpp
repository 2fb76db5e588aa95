// The ring beside the MPI library's own reduction, and what it promises beyond it.
#include "lockstep/allreduce/algorithm/ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::cos(static_cast<float>(i) * 0.37f + static_cast<float>(rank));
  return values;
}

class Ring : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world_size() == 1) GTEST_SKIP() << "a ring needs two ranks";
  }
};

TEST_F(Ring, AgreesWithTheLibrary) {
  const Communicator library = make_mpi_group(MPI_COMM_WORLD, Route::mpi);
  for (const RingOptions& options :
       {RingOptions{}, RingOptions{.doubling_bytes = 0, .segment_bytes = 256},
        RingOptions{.doubling_bytes = 0, .segment_bytes = 4096}, RingOptions{.doubling_bytes = 1 << 20}}) {
    run_member(Communicator(make_ring(MPI_COMM_WORLD, options)), [&](const Communicator& ring) {
      for (const std::size_t count : {0, 1, 2, 5, 64, 1023, 8192, 50'001}) {
        std::vector<float> sum = values_of(ring.rank(), count);
        std::vector<float> oracle = sum;
        std::vector<float> largest = sum;
        std::vector<float> oracle_largest = sum;
        sum_and_wait(ring, sum);
        sum_and_wait(library, oracle);
        reduce_and_wait(ring, largest, ReduceOp::max);
        reduce_and_wait(library, oracle_largest, ReduceOp::max);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_NEAR(sum[i], oracle[i], 1e-6f * static_cast<float>(ring.size())) << i;
        ASSERT_EQ(largest, oracle_largest);
      }
    });
  }
}

TEST_F(Ring, GivesTheSameBitsWhateverTheSegments) {
  run_member(Communicator(make_ring(MPI_COMM_WORLD)), [](const Communicator& usual) {
    const Communicator fine(make_ring(MPI_COMM_WORLD, {.segment_bytes = 576}));
    std::vector<float> first = values_of(usual.rank(), 50'001);
    std::vector<float> second = first;
    sum_and_wait(usual, first);
    sum_and_wait(fine, second);
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
  });
}

TEST_F(Ring, RefusesSegmentsThatSplitACacheLine) {
  EXPECT_THROW(make_ring(MPI_COMM_WORLD, {.segment_bytes = 100}), CheckFailure);
  EXPECT_THROW(make_ring(MPI_COMM_WORLD, {.segment_bytes = 0}), CheckFailure);
}

}  // namespace
}  // namespace lockstep::allreduce
