// Members that disagree or leave: every member gets the same error, and none waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ValuesIn;

class Failures : public ::testing::TestWithParam<GroupKind> {};

// Like error_of, and the error must be one of communication.
template <typename Call>
std::string communication_error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::communication);
    return error.what();
  }
  return "no error";
}

bool is_last(const Communicator& group) { return group.rank() == group.size() - 1; }

TEST_P(Failures, DifferentCountsAreAnErrorOnEveryMember) {
  for (const auto& [usual, odd] :
       {std::pair<std::size_t, std::size_t>{10, 11}, {10, 0}, {0, 10}, {100'003, 100'004}, {300'000, 5}}) {
    run(GetParam(), [&, usual_count = usual, odd_count = odd](const Communicator& group) {
      const int last = group.size() - 1;
      std::vector<float> values(is_last(group) ? odd_count : usual_count, 1.0f);
      EXPECT_EQ(
          communication_error_of([&] { sum_and_wait(group, values); }),
          fmt::format(
              "[all_reduce] expected the same call on all members; member {} called all_reduce({} float32, sum) and "
              "member {} called all_reduce({} float32, sum)",
              GetParam().named_beside_last, usual_count, last, odd_count));
    });
  }
}

TEST_P(Failures, DifferentOperationsAreAnErrorOnEveryMember) {
  run(GetParam(), [](const Communicator& group) {
    std::vector<float> values(50'000, 1.0f);
    EXPECT_THAT(
        communication_error_of([&] { reduce_and_wait(group, values, is_last(group) ? ReduceOp::max : ReduceOp::sum); }),
        AllOf(HasSubstr("all_reduce(50000 float32, sum) and member"),
              HasSubstr(fmt::format("member {} called all_reduce(50000 float32, max)", group.size() - 1))));
  });
}

TEST_P(Failures, DifferentTypesAreAnErrorOnEveryMember) {
  run(GetParam(), [](const Communicator& group) {
    std::vector<float> floats(6);
    std::vector<std::int32_t> integers(6);
    EXPECT_THAT(
        communication_error_of([&] { is_last(group) ? sum_and_wait(group, integers) : sum_and_wait(group, floats); }),
        AllOf(HasSubstr("all_reduce(6 float32, sum) and member"),
              HasSubstr(fmt::format("member {} called all_reduce(6 int32, sum)", group.size() - 1))));
  });
}

TEST_P(Failures, DifferentCallsAreAnErrorOnEveryMember) {
  run(GetParam(), [&](const Communicator& group) {
    EXPECT_EQ(communication_error_of([&] { is_last(group) ? group.barrier() : static_cast<void>(group.any(false)); }),
              fmt::format(
                  "[any] expected the same call on all members; member {} called any() and member {} called barrier()",
                  GetParam().named_beside_last_in_control.value_or(GetParam().named_beside_last), group.size() - 1));
  });
}

TEST_P(Failures, ADifferenceEndsTheGroup) {
  run(GetParam(), [](const Communicator& group) {
    std::vector<float> values(is_last(group) ? 2 : 1);
    const std::string first = communication_error_of([&] { sum_and_wait(group, values); });
    EXPECT_THAT(first, StartsWith("[all_reduce] expected the same call"));
    EXPECT_EQ(communication_error_of([&] { group.barrier(); }), first);
    EXPECT_EQ(communication_error_of([&] { group.all_gather({}); }), first);
  });
}

TEST_P(Failures, AMemberThatLeavesTakesAllWithIt) {
  run(GetParam(), [](const Communicator& group) {
    group.barrier();
    std::string message;
    if (group.rank() == 0) {
      group.abort("its data set is unreadable");
      message = communication_error_of([&] { group.barrier(); });
    } else {
      std::vector<float> values(100'003);
      message = communication_error_of([&] { sum_and_wait(group, values); });
    }
    const std::string expected = fmt::format(
        "[all_reduce] expected all {} members of the group; member 0 left: its data set is unreadable", group.size());
    EXPECT_EQ(message, expected);
    EXPECT_EQ(communication_error_of([&] { static_cast<void>(group.any(true)); }), expected);
  });
}

TEST_P(Failures, TheLastMemberMayLeaveToo) {
  run(GetParam(), [](const Communicator& group) {
    if (is_last(group)) group.abort("out of memory");
    const auto leave_or_wait = [&] { group.barrier(); };
    EXPECT_EQ(communication_error_of(leave_or_wait),
              fmt::format("[all_reduce] expected all {0} members of the group; member {1} left: out of memory",
                          group.size(), group.size() - 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, Failures, ValuesIn(kinds_of_several()), name_of_kind);

}  // namespace
}  // namespace lockstep::allreduce
