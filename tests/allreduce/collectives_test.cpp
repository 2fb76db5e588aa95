// The contract of all routes as one table: kinds of groups x element types x operations x sizes,
// each with an analytic result. The program defines the kinds (group_kinds.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <type_traits>

#include "lockstep/allreduce/member/element.h"
#include "lockstep/device/buffer.h"
#include "tests/allreduce/group_kinds.h"

namespace lockstep::inline v0::allreduce {
namespace {

class Collectives : public ::testing::TestWithParam<GroupKind> {};
class ExactCollectives : public ::testing::TestWithParam<GroupKind> {};
class OrderedCollectives : public ::testing::TestWithParam<GroupKind> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OrderedCollectives);

template <typename Body>
void for_each_type(const Body& body) {
  const auto run_for = [&](const char* name, auto type) {
    SCOPED_TRACE(name);
    body(type);
  };
  run_for("float32", std::type_identity<float>());
  run_for("float64", std::type_identity<double>());
  run_for("float16", std::type_identity<Float16>());
  run_for("bfloat16", std::type_identity<BFloat16>());
  run_for("uint8", std::type_identity<std::uint8_t>());
  run_for("int32", std::type_identity<std::int32_t>());
  run_for("int64", std::type_identity<std::int64_t>());
}

template <typename T>
T stored(auto value) {
  return Element<T>::store(static_cast<typename Element<T>::Total>(value));
}

template <typename T>
constexpr bool kIsNarrow = sizeof(T) <= 2;

// Whole numbers, whose sums are exact in every type; in the wider types they differ between all
// ranks and neighbors.
constexpr ReduceOp kOperations[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product};

template <typename T>
struct Numbers {
  int members;

  int first_value(std::size_t i) const {
    return kIsNarrow<T> ? static_cast<int>(i % 13) : members * static_cast<int>(i % 97);
  }
  std::vector<T> values_of(int rank, std::size_t count) const {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = stored<T>(first_value(i) + rank);
    return values;
  }
  /// For a product: powers of two, and one rank with a small odd factor.
  std::vector<T> factors_of(int rank, std::size_t count) const {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = stored<T>(rank == 0 ? static_cast<int>(i % 7) - 3 : 1 + static_cast<int>(i % 2));
    return values;
  }
  int reduced(ReduceOp op, std::size_t i) const {
    if (op == ReduceOp::sum) return members * first_value(i) + sum_of_ranks(members);
    if (op == ReduceOp::product)
      return (static_cast<int>(i % 7) - 3) * (i % 2 == 0 ? 1 : 1 << (members - 1));
    return first_value(i) + (op == ReduceOp::max ? members - 1 : 0);
  }
};

template <typename T>
void expect_reduced(std::span<const T> values, const Numbers<T>& numbers, ReduceOp op,
                    const std::string& what) {
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(Element<T>::load(values[i]), Element<T>::load(stored<T>(numbers.reduced(op, i))))
        << name_of(op) << what << ", element " << i << " of " << values.size();
}

TEST_P(Collectives, NumberTheirMembers) {
  run(GetParam(), [](const Communicator& group) {
    EXPECT_EQ(group.size(), GetParam().size);
    EXPECT_GE(group.rank(), 0);
    EXPECT_LT(group.rank(), group.size());
    for (const std::size_t count : {0, 1, 17, 1000, 100'003}) {
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

TEST_P(Collectives, ReduceEveryTypeByEveryOperation) {
  run(GetParam(), [](const Communicator& group) {
    for_each_type([&]<typename T>(std::type_identity<T>) {
      const Numbers<T> numbers{group.size()};
      for (const ReduceOp op : kOperations)
        for (const std::size_t count : {0, 1, 2, 6, 7, 33, 1000, 100'003}) {
          std::vector<T> values = op == ReduceOp::product ? numbers.factors_of(group.rank(), count)
                                                          : numbers.values_of(group.rank(), count);
          Request request = group.all_reduce(std::span(values), op);
          request.wait();
          EXPECT_TRUE(request.test());
          expect_reduced<T>(values, numbers, op, "");
        }
    });
  });
}

// The caller's memory at any alignment, memory of the group, and both in one call.
enum class Memory { callers, groups, mixed };

template <typename T>
void expect_sums_in(Memory memory, bool in_two_halves, std::size_t count,
                    const Communicator& group) {
  const Numbers<T> numbers{group.size()};
  const bool is_groups =
      memory == Memory::groups || (memory == Memory::mixed && group.rank() % 2 == 1);
  const T before = stored<T>(5);
  std::vector<T> storage(count + 3, before);
  const device::Buffer buffer = group.allocate((count + 1) * sizeof(T));
  EXPECT_TRUE(std::ranges::all_of(buffer.as<std::byte>(),
                                  [](std::byte byte) { return byte == std::byte{0}; }));
  const std::span<T> values =
      is_groups ? buffer.as<T>().first(count) : std::span(storage).subspan(3);
  std::ranges::copy(numbers.values_of(group.rank(), count), values.begin());
  if (in_two_halves) {
    group.reduce_scatter(values).wait();
    const Slice mine = group.slice<T>(count, group.rank());
    std::ranges::fill(values.first(mine.begin), before);
    std::ranges::fill(values.subspan(mine.end), before);
    group.all_gather(values).wait();
  } else {
    group.all_reduce(values).wait();
  }
  expect_reduced<T>(values, numbers, ReduceOp::sum,
                    in_two_halves ? " in two halves" : " in one call");
  for (const T& untouched : std::span(storage).first(3))
    EXPECT_EQ(Element<T>::load(untouched), Element<T>::load(before));
}

TEST_P(Collectives, ReduceMemoryOfAnyKindAtOnceAndInTwoHalves) {
  run(GetParam(), [](const Communicator& group) {
    for (const Memory memory : {Memory::callers, Memory::groups, Memory::mixed})
      for (const bool in_two_halves : {false, true}) {
        for_each_type([&]<typename T>(std::type_identity<T>) {
          for (const std::size_t count : {0, 33, 10'007})
            expect_sums_in<T>(memory, in_two_halves, count, group);
        });
        // Beyond one segment of a ring.
        expect_sums_in<float>(memory, in_two_halves, 300'007, group);
      }
  });
}

// Values of very different sizes, whose sum depends on the order of the additions.
double uneven_value(int rank, std::size_t i, int decades) {
  return std::sin(static_cast<double>(i * 7 + 1) * (rank + 1)) *
         std::pow(10.0, static_cast<int>(i + static_cast<std::size_t>(rank)) % decades);
}

template <typename T>
void expect_rounding_of(double precision, const Communicator& group) {
  constexpr std::size_t kCount = 1000;
  constexpr int kDecades = kIsNarrow<T> ? 4 : 7;
  std::vector<T> values(kCount);
  std::array<long double, kCount> exact{};
  std::array<long double, kCount> magnitude{};
  for (int rank = 0; rank < group.size(); ++rank)
    for (std::size_t i = 0; i < kCount; ++i) {
      const double value = uneven_value(rank, i, kDecades);
      exact[i] += value;
      magnitude[i] += std::abs(value);
      if (rank == group.rank()) values[i] = stored<T>(value);
    }
  sum_and_wait(group, values);
  // Each value is rounded once, and at worst each partial sum.
  for (std::size_t i = 0; i < kCount; ++i)
    ASSERT_NEAR(Element<T>::load(values[i]), static_cast<double>(exact[i]),
                static_cast<double>(magnitude[i]) * precision * 1.05 * group.size())
        << "element " << i << " of " << sizeof(T) << " bytes";
}

TEST_P(Collectives, RoundAsTheTypeDoes) {
  run(GetParam(), [](const Communicator& group) {
    expect_rounding_of<double>(0x1p-53, group);
    expect_rounding_of<float>(0x1p-24, group);
    expect_rounding_of<Float16>(0x1p-11, group);
    expect_rounding_of<BFloat16>(0x1p-8, group);
  });
}

TEST_P(ExactCollectives, AreBitwiseEqualOnEveryMemberAndInEveryRun) {
  run(GetParam(), [](const Communicator& group) {
    for (const std::size_t count : {1, 2, 7, 1000, 100'003}) {
      std::vector<float> first(count);
      for (std::size_t i = 0; i < count; ++i)
        first[i] = static_cast<float>(uneven_value(group.rank(), i, 7));
      std::vector<float> again = first;
      sum_and_wait(group, first);
      sum_and_wait(group, again);
      for (const auto& result : {first, again})
        for (const auto& other : group.all_gather(std::as_bytes(std::span(result))))
          ASSERT_TRUE(std::ranges::equal(other, std::as_bytes(std::span(first))))
              << count << " elements";
    }
  });
}

TEST_P(ExactCollectives, PropagateNan) {
  run(GetParam(), [](const Communicator& group) {
    for (const ReduceOp op : kOperations)
      for (int culprit = 0; culprit < group.size(); ++culprit) {
        std::vector<double> loss = {
            1.0, group.rank() == culprit ? std::numeric_limits<double>::quiet_NaN() : 1.0};
        reduce_and_wait(group, loss, op);
        EXPECT_FALSE(std::isnan(loss[0]));
        EXPECT_TRUE(std::isnan(loss[1])) << "member " << culprit << " of " << group.size();
      }
  });
}

TEST_P(OrderedCollectives, AddInMemberOrder) {
  run(GetParam(), [](const Communicator& group) {
    // (2^24 + 1) + 1 stays 2^24 in float32, while (1 + 1) + 2^24 does not: the result reveals the
    // order.
    constexpr float kLarge = 16777216.0F;
    const int last = group.size() - 1;
    std::vector<float> values(5000);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int large = i % 2 == 0 ? 0 : last;
      const bool is_one = group.rank() <= 1 || group.rank() == last;
      values[i] = group.rank() == large ? kLarge : is_one ? 1.0F : 0.0F;
    }
    sum_and_wait(group, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], i % 2 == 0 ? kLarge : kLarge + 2.0F) << i;
  });
}

TEST_P(Collectives, SendEachMemberItsPart) {
  run(GetParam(), [](const Communicator& group) {
    // Member r sends r + i bytes to member i; the parts of 0 bytes among them are empty.
    const auto part = [](int from, int to) {
      return std::vector(static_cast<std::size_t>(from + to),
                         std::byte{static_cast<unsigned char>(16 * from + to)});
    };
    for (int round = 0; round < 2; ++round) {
      std::vector<std::vector<std::byte>> mine;
      for (int to = 0; to < group.size(); ++to) mine.push_back(part(group.rank(), to));
      const std::vector<std::span<const std::byte>> parts(mine.begin(), mine.end());
      const std::vector<std::vector<std::byte>> received = group.all_to_all(parts);
      ASSERT_EQ(received.size(), static_cast<std::size_t>(group.size()));
      for (int from = 0; from < group.size(); ++from)
        EXPECT_EQ(received[static_cast<std::size_t>(from)], part(from, group.rank()));
    }
  });
}

TEST_P(Collectives, WrapIntegersAround) {
  run(GetParam(), [](const Communicator& group) {
    constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();
    std::vector<std::int32_t> values = {group.rank() == 0 ? kLargest : 0,
                                        group.rank() == 0 ? kLargest : 1};
    sum_and_wait(group, values);
    EXPECT_EQ(values[0], kLargest);
    const auto wrapped =
        static_cast<std::uint32_t>(kLargest) + static_cast<std::uint32_t>(group.size() - 1);
    EXPECT_EQ(values[1], static_cast<std::int32_t>(wrapped));
  });
}

TEST_P(Collectives, AlternateBetweenTwoGroups) {
  const auto setting = setting_of(GetParam());
  const std::vector<Communicator> one = GetParam().make();
  const std::vector<Communicator> other = GetParam().make();
  run_members(one, [&](const Communicator& group) {
    const auto partner = std::ranges::find_if(
        other, [&](const Communicator& member) { return member.rank() == group.rank(); });
    ASSERT_NE(partner, other.end());
    for (int step = 0; step < 5; ++step) {
      std::vector<float> a(1000, 1.0F);
      std::vector<std::int64_t> b(10, group.rank() + step);
      sum_and_wait(group, a);
      sum_and_wait(*partner, b);
      ASSERT_EQ(a[999], static_cast<float>(group.size()));
      ASSERT_EQ(b[9], sum_of_ranks(group.size()) + step * group.size());
    }
  });
}

TEST_P(Collectives, LeaveBuffersThatOutliveThem) {
  std::mutex mutex;
  std::vector<device::Buffer> buffers;
  run(GetParam(), [&](const Communicator& group) {
    device::Buffer buffer = group.allocate(100'000);
    std::ranges::fill(buffer.as<float>(), 1.0F);
    group.all_reduce(buffer.as<float>()).wait();
    const std::scoped_lock lock(mutex);
    buffers.push_back(std::move(buffer));
  });
  const auto setting = setting_of(GetParam());
  for (const device::Buffer& buffer : buffers) {
    EXPECT_EQ(buffer.as<float>().back(), static_cast<float>(GetParam().size));
    std::ranges::fill(buffer.as<std::byte>(), std::byte{1});
  }
}

TEST_P(Collectives, BroadcastFromEveryRoot) {
  run(GetParam(), [](const Communicator& group) {
    for (int root = 0; root < group.size(); ++root)
      for (const std::size_t count : {0, 1, 1001, 300'000}) {
        std::vector<std::int32_t> values(count);
        for (std::size_t i = 0; i < count; ++i)
          values[i] = group.rank() * 1000 + static_cast<int>(i % 89);
        group.broadcast(std::as_writable_bytes(std::span(values)), root);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(values[i], root * 1000 + static_cast<int>(i % 89))
              << "element " << i << " from " << root;
      }
    EXPECT_THAT(error_of([&] { group.broadcast({}, group.size()); }),
                ::testing::HasSubstr("root < size()"));
    EXPECT_THAT(error_of([&] { group.broadcast({}, -1); }), ::testing::HasSubstr("root >= 0"));
  });
}

TEST_P(Collectives, GatherBytesOfAnySize) {
  run(GetParam(), [](const Communicator& group) {
    for (int step = 0; step < 3; ++step) {
      // Member r contributes r + step letters: member 0 none at first.
      const auto letters = [&](int rank) {
        return std::vector<std::byte>(static_cast<std::size_t>(rank + step),
                                      static_cast<std::byte>('a' + rank));
      };
      const auto all = group.all_gather(letters(group.rank()));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(group.size()));
      for (int rank = 0; rank < group.size(); ++rank)
        EXPECT_EQ(all[static_cast<std::size_t>(rank)], letters(rank));
    }
  });
}

TEST_P(Collectives, AnyIsTrueIfOneMemberRequestsIt) {
  run(GetParam(), [](const Communicator& group) {
    EXPECT_FALSE(group.any(false));
    EXPECT_TRUE(group.any(true));
    for (int member = 0; member < group.size(); ++member) {
      EXPECT_TRUE(group.any(group.rank() == member)) << "member " << member;
      EXPECT_FALSE(group.any(false));
    }
  });
}

TEST_P(Collectives, MixAllOperations) {
  run(GetParam(), [](const Communicator& group) {
    for (int step = 0; step < 10; ++step) {
      group.barrier();
      std::vector<float> values(static_cast<std::size_t>(step * 37), 1.0F);
      sum_and_wait(group, values);
      for (const float value : values) ASSERT_EQ(value, static_cast<float>(group.size()));
      std::int32_t chosen = group.rank() + step;
      group.broadcast(std::as_writable_bytes(std::span(&chosen, 1)), step % group.size());
      ASSERT_EQ(chosen, step % group.size() + step);
      ASSERT_EQ(group.any(group.rank() == step), step < group.size());
      ASSERT_EQ(group.all_gather({}).size(), static_cast<std::size_t>(group.size()));
    }
  });
}

using ::testing::ValuesIn;
INSTANTIATE_TEST_SUITE_P(Groups, Collectives, ValuesIn(group_kinds()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, ExactCollectives, ValuesIn(kinds_with(&GroupKind::is_exact)),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, OrderedCollectives,
                         ValuesIn(kinds_with(&GroupKind::adds_in_member_order)), name_of_kind);

}  // namespace
}  // namespace lockstep::inline v0::allreduce
