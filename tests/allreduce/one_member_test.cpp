#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OneMember, DoesNothing) {
  const std::vector<Communicator> members = make_in_process_group(1);
  ASSERT_EQ(members.size(), 1U);
  const Communicator& group = members.front();
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.route(), "none");

  std::vector<float> values = {1.5f, -2.0f};
  sum_and_wait(group, values);
  EXPECT_THAT(values, ElementsAre(1.5f, -2.0f));
  group.broadcast(std::as_writable_bytes(std::span(values)), 0);
  EXPECT_THAT(values, ElementsAre(1.5f, -2.0f));
  const std::vector<std::byte> mine = {std::byte{7}};
  EXPECT_THAT(group.all_gather(mine), ElementsAre(mine));
  EXPECT_TRUE(group.any(true));
  EXPECT_FALSE(group.any(false));
  group.barrier();
}

TEST(OneMember, LeavesItsGroup) {
  const Communicator group = make_in_process_group(1).front();
  group.abort("no more disk");
  EXPECT_THAT(error_of([&] { group.barrier(); }), HasSubstr("member 0 left: no more disk"));
}

}  // namespace
}  // namespace lockstep::allreduce
