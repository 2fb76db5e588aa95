#include "lockstep/allreduce/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

using ::testing::ValuesIn;
using Layout = std::vector<LayoutEntry>;

class CheckLayout : public ::testing::TestWithParam<GroupKind> {};

class LayoutDifference : public ::testing::TestWithParam<GroupKind> {
 protected:
  // The last member has the layout `odd`, all others `usual`; everyone must get the same error.
  void expect_difference(const Layout& usual, const Layout& odd, const std::string& difference) {
    run(GetParam(), [&](const Communicator& group) {
      const int last = group.size() - 1;
      const Layout& layout = group.rank() == last ? odd : usual;
      EXPECT_EQ(
          error_of([&] { check_layout(group, layout); }),
          "[all_reduce] expected the same parameters on all replicas; " + fmt::format(fmt::runtime(difference), last))
          << "on replica " << group.rank();
      group.barrier();  // the group lives on
    });
  }
};

TEST_P(CheckLayout, AcceptsEqualLayouts) {
  run(GetParam(), [](const Communicator& group) {
    EXPECT_EQ(error_of([&] { check_layout(group, {}); }), "");
    const Layout layout = {{"conv1/kernel", 288}, {"dense/bias", 10}};
    EXPECT_EQ(error_of([&] { check_layout(group, layout); }), "");
  });
}

TEST_P(LayoutDifference, NamesAParameterOfAnotherSize) {
  expect_difference({{"conv1/kernel", 288}, {"dense/bias", 10}}, {{"conv1/kernel", 288}, {"dense/bias", 11}},
                    "dense/bias has 10 elements on replica 0 and 11 on replica {}");
}

TEST_P(LayoutDifference, NamesParametersInAnotherOrder) {
  expect_difference({{"a", 1}, {"b", 1}}, {{"b", 1}, {"a", 1}}, "parameter 0 is a on replica 0 and b on replica {}");
}

TEST_P(LayoutDifference, NamesAMissingParameter) {
  expect_difference({{"a", 1}, {"b", 1}}, {{"a", 1}}, "b is on replica 0 and not on replica {}");
}

TEST_P(LayoutDifference, NamesAnExtraParameter) {
  expect_difference({{"a", 1}}, {{"a", 1}, {"b", 1}}, "b is on replica {} and not on replica 0");
}

TEST_P(LayoutDifference, IsAnErrorOfCommunication) {
  run(GetParam(), [](const Communicator& group) {
    const Layout layout = {{"a", static_cast<std::uint64_t>(group.rank())}};
    try {
      check_layout(group, layout);
      ADD_FAILURE() << "layouts that differ were accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::communication);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, CheckLayout, ValuesIn(group_kinds()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Groups, LayoutDifference, ValuesIn(kinds_of_several()), name_of_kind);

}  // namespace
}  // namespace lockstep::allreduce
