// What all_reduce promises on every route: distinct values for every rank and index, and an answer known without a
// second implementation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

using ::testing::ValuesIn;

const std::vector<std::size_t> kCounts = {0, 1, 2, 6, 7, 1000, 100'003};

class AllReduce : public ::testing::TestWithParam<GroupKind> {};
class ExactAllReduce : public ::testing::TestWithParam<GroupKind> {};

template <typename T>
std::vector<T> values_of(int rank, int size, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int multiple = static_cast<int>(i % 97) * size;
    values[i] = static_cast<T>(rank) + static_cast<T>(multiple);
  }
  return values;
}

template <typename T>
void expect_sums(const GroupKind& kind) {
  run(kind, [&](const Communicator& group) {
    const int n = kind.size;
    for (const std::size_t count : kCounts) {
      std::vector<T> values = values_of<T>(group.rank(), n, count);

      sum_and_wait(group, values);

      // sum over r of (r + k*n) = n(n-1)/2 + k*n*n: small integers, exact in every type.
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(values[i], static_cast<T>(sum_of_ranks(n) + static_cast<int>(i % 97) * n * n))
            << "element " << i << " of " << count << " on rank " << group.rank();
    }
  });
}

template <typename T>
void expect_extremes(const GroupKind& kind) {
  run(kind, [&](const Communicator& group) {
    const int n = kind.size;
    for (const std::size_t count : kCounts) {
      std::vector<T> largest = values_of<T>(group.rank(), n, count);
      std::vector<T> smallest = largest;

      reduce_and_wait(group, largest, ReduceOp::max);
      reduce_and_wait(group, smallest, ReduceOp::min);

      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(largest[i], static_cast<T>(n - 1 + static_cast<int>(i % 97) * n))
            << "element " << i << " of " << count;
        ASSERT_EQ(smallest[i], static_cast<T>(static_cast<int>(i % 97) * n)) << "element " << i << " of " << count;
      }
    }
  });
}

TEST_P(AllReduce, KnowsItsSize) {
  run(GetParam(), [&](const Communicator& group) {
    EXPECT_EQ(group.size(), GetParam().size);
    EXPECT_GE(group.rank(), 0);
    EXPECT_LT(group.rank(), group.size());
  });
}

TEST_P(AllReduce, SumsFloat32) { expect_sums<float>(GetParam()); }
TEST_P(AllReduce, SumsFloat64) { expect_sums<double>(GetParam()); }
TEST_P(AllReduce, SumsInt32) { expect_sums<std::int32_t>(GetParam()); }
TEST_P(AllReduce, SumsInt64) { expect_sums<std::int64_t>(GetParam()); }
TEST_P(AllReduce, FindsExtremesOfFloat32) { expect_extremes<float>(GetParam()); }
TEST_P(AllReduce, FindsExtremesOfFloat64) { expect_extremes<double>(GetParam()); }
TEST_P(AllReduce, FindsExtremesOfInt32) { expect_extremes<std::int32_t>(GetParam()); }
TEST_P(AllReduce, FindsExtremesOfInt64) { expect_extremes<std::int64_t>(GetParam()); }

TEST_P(AllReduce, SumsALargeBufferThatStartsAnywhere) {
  run(GetParam(), [&](const Communicator& group) {
    const int n = group.size();
    // Beyond one segment of a ring, and not aligned to a cache line.
    std::vector<float> storage = values_of<float>(group.rank(), n, 300'007);
    group.all_reduce(std::span(storage).subspan(3)).wait();
    for (std::size_t i = 0; i < 3; ++i)
      ASSERT_EQ(storage[i], static_cast<float>(group.rank() + static_cast<int>(i) * n));
    for (std::size_t i = 3; i < storage.size(); ++i)
      ASSERT_EQ(storage[i], static_cast<float>(sum_of_ranks(n) + static_cast<int>(i % 97) * n * n)) << "element " << i;
  });
}

// Values whose sum depends on the order of the additions.
std::vector<float> unfriendly_values(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) *
                std::pow(10.0f, static_cast<float>((i + rank) % 7));
  return values;
}

std::vector<std::byte> bits_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST_P(ExactAllReduce, GivesTheSameBitsOnEveryMemberAndInEveryRun) {
  run(GetParam(), [&](const Communicator& group) {
    for (const std::size_t count : kCounts) {
      std::vector<float> first = unfriendly_values(group.rank(), count);
      sum_and_wait(group, first);
      std::vector<float> again = unfriendly_values(group.rank(), count);
      sum_and_wait(group, again);
      ASSERT_EQ(bits_of(first), bits_of(again)) << count << " elements";
      const auto all = group.all_gather(std::as_bytes(std::span(first)));
      for (const auto& other : all) ASSERT_EQ(other, all.front()) << count << " elements";
    }
  });
}

TEST_P(AllReduce, ApproximatesTheExactSum) {
  run(GetParam(), [&](const Communicator& group) {
    std::vector<float> sum = unfriendly_values(group.rank(), 1000);
    sum_and_wait(group, sum);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      double exact = 0;
      double magnitude = 0;
      for (int rank = 0; rank < group.size(); ++rank) {
        const double value = unfriendly_values(rank, i + 1).back();
        exact += value;
        magnitude += std::abs(value);
      }
      ASSERT_NEAR(sum[i], exact, magnitude * 1e-6) << "element " << i;
    }
  });
}

TEST_P(ExactAllReduce, PassesANanOn) {
  run(GetParam(), [](const Communicator& group) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      for (int culprit = 0; culprit < group.size(); ++culprit) {
        std::vector<double> loss = {1.0, group.rank() == culprit ? std::numeric_limits<double>::quiet_NaN() : 1.0};
        reduce_and_wait(group, loss, op);
        EXPECT_FALSE(std::isnan(loss[0]));
        EXPECT_TRUE(std::isnan(loss[1])) << "member " << culprit << " of " << group.size();
      }
    }
  });
}

TEST_P(AllReduce, WrapsIntegersAround) {
  run(GetParam(), [](const Communicator& group) {
    std::vector<std::int32_t> values = {group.rank() == 0 ? std::numeric_limits<std::int32_t>::max() : 0,
                                        group.rank() == group.size() - 1 ? 1 : 0};
    std::vector<std::int32_t> shifted = {group.rank() == 0 ? std::numeric_limits<std::int32_t>::max() : 1};
    sum_and_wait(group, values);
    sum_and_wait(group, shifted);
    EXPECT_EQ(values[0], std::numeric_limits<std::int32_t>::max());
    EXPECT_EQ(values[1], 1);
    const auto wrapped = static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max()) +
                         static_cast<std::uint32_t>(group.size() - 1);
    EXPECT_EQ(shifted[0], static_cast<std::int32_t>(wrapped));
  });
}

TEST_P(AllReduce, ReducesMemoryOfItsOwnInPlace) {
  run(GetParam(), [](const Communicator& group) {
    const device::Buffer buffer = group.allocate(1000 * sizeof(float));
    const std::span<float> values = buffer.as<float>();
    ASSERT_EQ(values.size(), 1000U);
    for (const float value : values) ASSERT_EQ(value, 0.0f);
    values[999] = 1.0f;
    Request request = group.all_reduce(values);
    request.wait();
    EXPECT_TRUE(request.test());
    EXPECT_EQ(values[0], 0.0f);
    EXPECT_EQ(values[999], static_cast<float>(group.size()));
  });
}

TEST_P(AllReduce, ServesTwoGroupsInTurn) {
  const std::vector<Communicator> one = GetParam().make();
  const std::vector<Communicator> other = GetParam().make();
  run_members(one, [&](const Communicator& group) {
    // A thread's members of both groups have the same index among those that this process drives.
    const Communicator* partner = nullptr;
    for (std::size_t i = 0; i < one.size(); ++i)
      if (one[i].rank() == group.rank()) partner = &other[i];
    ASSERT_NE(partner, nullptr);
    for (int step = 0; step < 5; ++step) {
      std::vector<float> a(1000, 1.0f);
      std::vector<std::int64_t> b(10, group.rank() + step);
      sum_and_wait(group, a);
      sum_and_wait(*partner, b);
      ASSERT_EQ(a[999], static_cast<float>(group.size()));
      ASSERT_EQ(b[9], group.size() * (group.size() - 1) / 2 + step * group.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, AllReduce, ValuesIn(group_kinds()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, ExactAllReduce, ValuesIn(exact_kinds()), name_of_kind);

}  // namespace
}  // namespace lockstep::allreduce
