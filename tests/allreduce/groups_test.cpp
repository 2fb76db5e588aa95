#include "lockstep/allreduce/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/support/ranks.h"

namespace lockstep::allreduce {
namespace {

TEST(ParseRoute, ReadsWhatItWrites) {
  for (const Route route : {Route::automatic, Route::in_process, Route::shared_memory, Route::ring, Route::hierarchical,
                            Route::mpi, Route::nccl, Route::staged})
    EXPECT_EQ(parse_route(to_string(route)), route);
  EXPECT_EQ(to_string(Route::automatic), "auto");
  EXPECT_EQ(to_string(Route::in_process), "in-process");
}

TEST(ParseRoute, ListsTheNames) {
  try {
    parse_route("tree");
    FAIL() << "an unknown route was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    EXPECT_STREQ(error.what(),
                 "[--allreduce] expected auto, in-process, shared-memory, ring, hierarchical, mpi, nccl or staged, got "
                 "\"tree\"");
  }
}

TEST(InProcessGroup, NumbersItsMembers) {
  const std::vector<Communicator> group = make_in_process_group(3);
  ASSERT_EQ(group.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(group[static_cast<std::size_t>(rank)].rank(), rank);
    EXPECT_EQ(group[static_cast<std::size_t>(rank)].size(), 3);
    EXPECT_EQ(group[static_cast<std::size_t>(rank)].route(), "in-process");
  }
}

TEST(InProcessGroup, NeedsAMember) { EXPECT_THROW(make_in_process_group(0), CheckFailure); }

}  // namespace
}  // namespace lockstep::allreduce
