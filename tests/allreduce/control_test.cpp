// The small operations around the reduction, on every route.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

using ::testing::ValuesIn;

class Control : public ::testing::TestWithParam<GroupKind> {};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST_P(Control, BroadcastsFromEveryRoot) {
  run(GetParam(), [](const Communicator& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{300'000}}) {
        std::vector<std::int32_t> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = group.rank() * 1000 + static_cast<int>(i % 89);
        group.broadcast(std::as_writable_bytes(std::span(values)), root);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(values[i], root * 1000 + static_cast<int>(i % 89))
              << "element " << i << " from " << root << " on " << group.rank();
      }
    }
  });
}

TEST_P(Control, RefusesARootOutsideTheGroup) {
  run(GetParam(), [](const Communicator& group) {
    EXPECT_THAT(error_of([&] { group.broadcast({}, group.size()); }), ::testing::HasSubstr("root < size()"));
    EXPECT_THAT(error_of([&] { group.broadcast({}, -1); }), ::testing::HasSubstr("root >= 0"));
  });
}

TEST_P(Control, GathersBytesOfAnySize) {
  run(GetParam(), [](const Communicator& group) {
    for (int step = 0; step < 3; ++step) {
      // Member r brings r + step letters: none from member 0 at first.
      const auto word = [&](int rank) {
        return std::string(static_cast<std::size_t>(rank + step), static_cast<char>('a' + rank));
      };
      const auto all = group.all_gather(bytes_of(word(group.rank())));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(group.size()));
      for (int rank = 0; rank < group.size(); ++rank)
        EXPECT_EQ(all[static_cast<std::size_t>(rank)], bytes_of(word(rank)));
    }
  });
}

TEST_P(Control, AgreesOnAnyMembersWish) {
  run(GetParam(), [](const Communicator& group) {
    EXPECT_FALSE(group.any(false));
    EXPECT_TRUE(group.any(true));
    for (int who = 0; who < group.size(); ++who) {
      EXPECT_TRUE(group.any(group.rank() == who)) << "member " << who;
      EXPECT_FALSE(group.any(false));
    }
  });
}

TEST_P(Control, MixesAllOperations) {
  run(GetParam(), [](const Communicator& group) {
    for (int step = 0; step < 10; ++step) {
      group.barrier();
      std::vector<float> values(static_cast<std::size_t>(step * 37), 1.0f);
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

INSTANTIATE_TEST_SUITE_P(Groups, Control, ValuesIn(group_kinds()), name_of_kind);

}  // namespace
}  // namespace lockstep::allreduce
