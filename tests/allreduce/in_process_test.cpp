// What the threads' route promises beyond what all routes do.
#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

TEST(InProcess, AddsInMemberOrder) {
  // (2^24 + 1) + 1 stays 2^24 in float32, while 2^24 + (1 + 1) does not: the order shows.
  const std::vector<float> big_first = {16777216.0f, 1.0f, 1.0f};
  const std::vector<float> big_last = {1.0f, 1.0f, 16777216.0f};
  run_ranks(3, Route::in_process, [&](const Communicator& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? big_first[rank] : big_last[rank];
    sum_and_wait(group, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], i % 2 == 0 ? 16777216.0f : 16777218.0f) << "element " << i;
  });
}

TEST(InProcess, RunsManyOperationsWithMoreMembersThanCores) {
  run_ranks(8, Route::in_process, [](const Communicator& group) {
    std::vector<std::int64_t> values(64, 1);
    for (int step = 0; step < 300; ++step) {
      sum_and_wait(group, values);
      for (std::int64_t& value : values) {
        ASSERT_EQ(value, 8);
        value = 1;
      }
    }
  });
}

TEST(InProcess, GroupsOfOneProcessAreIndependent) {
  const std::vector<Communicator> left = make_in_process_group(2);
  const std::vector<Communicator> right = make_in_process_group(3);
  std::vector<Communicator> all = left;
  all.insert(all.end(), right.begin(), right.end());
  run_members(all, [](const Communicator& group) {
    for (int step = 0; step < 200; ++step) {
      std::vector<float> values(500, static_cast<float>(group.size()));
      sum_and_wait(group, values);
      ASSERT_EQ(values[499], static_cast<float>(group.size() * group.size()));
    }
  });
}

TEST(InProcess, AFailedGroupLeavesOthersAlone) {
  const std::vector<Communicator> broken = make_in_process_group(2);
  broken[0].abort("this group only");
  EXPECT_NE(error_of([&] { broken[1].barrier(); }), "");
  run_ranks(2, Route::in_process, [](const Communicator& group) { EXPECT_EQ(error_of([&] { group.barrier(); }), ""); });
}

TEST(InProcess, TheFirstReasonStays) {
  const std::vector<Communicator> group = make_in_process_group(2);
  group[1].abort("first");
  group[0].abort("second");
  for (const Communicator& member : group)
    EXPECT_EQ(error_of([&] { member.barrier(); }),
              "[all_reduce] expected all 2 members of the group; member 1 left: first");
}

}  // namespace
}  // namespace lockstep::allreduce
