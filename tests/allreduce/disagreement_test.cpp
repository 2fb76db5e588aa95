// Members that disagree or leave, on every route: every member throws the same error, and none
// hangs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/allreduce/buckets/layout.h"
#include "lockstep/base/error.h"
#include "tests/allreduce/group_kinds.h"

namespace lockstep::inline v0::allreduce {
namespace {

class Disagreement : public ::testing::TestWithParam<GroupKind> {};
class Leaving : public ::testing::TestWithParam<GroupKind> {};
class EqualLayouts : public ::testing::TestWithParam<GroupKind> {};
class DifferentLayouts : public ::testing::TestWithParam<GroupKind> {};

// Like error_of, for an Error (communication).
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

struct NamedCall {
  std::string name;  // as in error messages
  std::function<void(const Communicator&)> run;
};

template <typename T>
NamedCall all_reduce_of(std::size_t count, const std::string& type, ReduceOp op = ReduceOp::sum) {
  return {fmt::format("all_reduce({} {}, {})", count, type, name_of(op)),
          [=](const Communicator& group) {
            std::vector<T> values(count);
            reduce_and_wait(group, values, op);
          }};
}

NamedCall floats(std::size_t count, ReduceOp op = ReduceOp::sum) {
  return all_reduce_of<float>(count, "float32", op);
}

struct Mismatch {
  NamedCall usual;
  NamedCall different;  // call of the last member
  std::string where = "all_reduce";
  bool carries_values = true;
};

TEST_P(Disagreement, IsTheSameErrorOnEveryMemberAndEndsTheGroup) {
  const GroupKind& kind = GetParam();
  const NamedCall any = {"any()",
                         [](const Communicator& group) { static_cast<void>(group.any(false)); }};
  const NamedCall barrier = {"barrier()", [](const Communicator& group) { group.barrier(); }};
  const std::vector<Mismatch> mismatches = {
      {floats(10), floats(11)},
      {floats(10), floats(0)},
      {floats(0), floats(10)},
      {floats(100'003), floats(100'004)},
      {floats(300'000), floats(5)},
      {floats(50'000), floats(50'000, ReduceOp::max)},
      {floats(6), all_reduce_of<std::int32_t>(6, "int32")},
      {any, barrier, "any", false},
  };
  for (const Mismatch& mismatch : mismatches)
    run(kind, [&](const Communicator& group) {
      const int usual = mismatch.carries_values
                            ? kind.named_with_last
                            : kind.named_with_last_in_control.value_or(kind.named_with_last);
      const std::string expected = fmt::format(
          "[{}] expected the same call on all members; member {} called {} and member {} called {}",
          mismatch.where, usual, mismatch.usual.name, group.size() - 1, mismatch.different.name);
      const NamedCall& mine = is_last(group) ? mismatch.different : mismatch.usual;
      EXPECT_EQ(communication_error_of([&] { mine.run(group); }), expected);
      EXPECT_EQ(communication_error_of([&] { group.barrier(); }), expected);
      EXPECT_EQ(communication_error_of([&] { group.all_gather({}); }), expected);
    });
}

TEST_P(Leaving, FirstMemberFailsAllMembers) {
  run(GetParam(), [](const Communicator& group) {
    std::string message;
    if (group.rank() == 0) {
      group.barrier();
      group.abort("its data set is unreadable");
      message = communication_error_of([&] { group.barrier(); });
    } else {
      std::vector<float> values(100'003);
      message = communication_error_of([&] {
        group.barrier();  // may throw already
        sum_and_wait(group, values);
      });
    }
    const std::string expected = fmt::format(
        "[all_reduce] expected all {} members of the group; member 0 left: its data set is "
        "unreadable",
        group.size());
    EXPECT_EQ(message, expected);
    EXPECT_EQ(communication_error_of([&] { static_cast<void>(group.any(true)); }), expected);
  });
}

TEST_P(Leaving, LastMemberFailsAllMembers) {
  run(GetParam(), [](const Communicator& group) {
    if (is_last(group)) group.abort("out of memory");
    EXPECT_EQ(
        communication_error_of([&] { group.barrier(); }),
        fmt::format(
            "[all_reduce] expected all {} members of the group; member {} left: out of memory",
            group.size(), group.size() - 1));
  });
}

using Layout = std::vector<LayoutEntry>;

TEST_P(EqualLayouts, AreAccepted) {
  run(GetParam(), [](const Communicator& group) {
    EXPECT_EQ(error_of([&] { check_layout(group, {}); }), "");
    const Layout layout = {{"conv1/kernel", 288}, {"dense/bias", 10}};
    EXPECT_EQ(error_of([&] { check_layout(group, layout); }), "");
  });
}

TEST_P(DifferentLayouts, ThrowTheSameErrorOnEveryMemberAndKeepTheGroupUsable) {
  struct Difference {
    Layout usual;
    Layout different;  // layout of the last member
    std::string text;
  };
  const std::vector<Difference> differences = {
      {{{"conv1/kernel", 288}, {"dense/bias", 10}},
       {{"conv1/kernel", 288}, {"dense/bias", 11}},
       "dense/bias has 10 elements on replica 0 and 11 on replica {}"},
      {{{"a", 1}, {"b", 1}},
       {{"b", 1}, {"a", 1}},
       "parameter 0 is a on replica 0 and b on replica {}"},
      {{{"a", 1}, {"b", 1}}, {{"a", 1}}, "b is on replica 0 and not on replica {}"},
      {{{"a", 1}}, {{"a", 1}, {"b", 1}}, "b is on replica {} and not on replica 0"},
  };
  run(GetParam(), [&](const Communicator& group) {
    for (const Difference& difference : differences) {
      EXPECT_EQ(communication_error_of([&] {
                  check_layout(group, is_last(group) ? difference.different : difference.usual);
                }),
                "[all_reduce] expected the same parameters on all replicas; " +
                    fmt::format(fmt::runtime(difference.text), group.size() - 1));
    }
    group.barrier();
  });
}

bool has_several(const GroupKind& kind) { return kind.size > 1; }

using ::testing::ValuesIn;
INSTANTIATE_TEST_SUITE_P(Groups, Disagreement, ValuesIn(kinds_with(has_several)), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, Leaving, ValuesIn(group_kinds()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, EqualLayouts, ValuesIn(group_kinds()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, DifferentLayouts, ValuesIn(kinds_with(has_several)), name_of_kind);

}  // namespace
}  // namespace lockstep::inline v0::allreduce
