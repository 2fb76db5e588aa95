// What reduce_scatter and all_gather promise on every route: together they are an all_reduce.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

class Slices : public ::testing::TestWithParam<GroupKind> {};

const std::vector<std::size_t> kCounts = {0, 1, 17, 1000, 100'003};

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + static_cast<int>(i % 89));
  return values;
}

float sum_at(std::size_t i, int n) { return static_cast<float>(sum_of_ranks(n) + n * static_cast<int>(i % 89)); }

TEST_P(Slices, CoverTheValues) {
  run(GetParam(), [](const Communicator& group) {
    for (const std::size_t count : kCounts) {
      std::size_t end = 0;
      for (int rank = 0; rank < group.size(); ++rank) {
        const Slice slice = group.slice<float>(count, rank);
        EXPECT_EQ(slice.begin, end);
        end = slice.end;
      }
      EXPECT_EQ(end, count);
    }
  });
}

TEST_P(Slices, AreCompleteAfterAReduceScatter) {
  run(GetParam(), [](const Communicator& group) {
    for (const std::size_t count : kCounts) {
      std::vector<float> values = values_of(group.rank(), count);
      group.reduce_scatter(std::span(values)).wait();
      const Slice mine = group.slice<float>(count, group.rank());
      for (std::size_t i = mine.begin; i < mine.end; ++i)
        ASSERT_EQ(values[i], sum_at(i, group.size())) << "element " << i << " of " << count;
    }
  });
}

TEST_P(Slices, ReachEveryMemberByAnAllGather) {
  run(GetParam(), [](const Communicator& group) {
    for (const std::size_t count : kCounts) {
      std::vector<std::int64_t> values(count, -1);
      const Slice mine = group.slice<std::int64_t>(count, group.rank());
      for (std::size_t i = mine.begin; i < mine.end; ++i) values[i] = static_cast<std::int64_t>(i) * 3;
      group.all_gather(std::span(values)).wait();
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<std::int64_t>(i) * 3) << count;
    }
  });
}

TEST_P(Slices, OfMemoryOfTheGroupAreAnAllReduceTogether) {
  run(GetParam(), [](const Communicator& group) {
    constexpr std::size_t kCount = 50'000;
    const device::Buffer buffer = group.allocate(kCount * sizeof(float));
    const std::span<float> values = buffer.as<float>();
    for (int step = 0; step < 3; ++step) {
      std::ranges::copy(values_of(group.rank(), kCount), values.begin());
      group.reduce_scatter(values).wait();
      group.all_gather(values).wait();
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], sum_at(i, group.size())) << i;
    }
  });
}

TEST_P(Slices, OutOfPlaceLeavesTheValuesAlone) {
  run(GetParam(), [](const Communicator& group) {
    const std::vector<float> values = values_of(group.rank(), 10'001);
    std::vector<float> results(values.size());
    group.all_reduce(std::span(values), std::span(results)).wait();
    EXPECT_EQ(values, values_of(group.rank(), 10'001));
    for (std::size_t i = 0; i < results.size(); ++i) ASSERT_EQ(results[i], sum_at(i, group.size())) << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, Slices, ::testing::ValuesIn(group_kinds()), name_of_kind);

}  // namespace
}  // namespace lockstep::allreduce
