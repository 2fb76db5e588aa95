// Runs on the ranks of an MPI job.
#include "lockstep/allreduce/watchdog/rendezvous.h"

#include <fmt/format.h>

#include <gtest/gtest.h>

#include <string>

#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/base/error.h"
#include "tests/support/mpi_ranks.h"

namespace lockstep::inline v0::allreduce {
namespace {

int last_rank() { return world_size() - 1; }

TEST(Rendezvous, GathersTheTextOfEveryRank) {
  const std::string mine = world_rank() == 0 ? "port 7" : "";
  const std::vector<std::string> texts = gather_texts(ranks_of(), mine);
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(last_rank() + 1));
  EXPECT_EQ(texts.front(), "port 7");
}

TEST(Rendezvous, UsesLoopbackIfAllRanksAreOnOneHost) {
  const std::vector<std::string> addresses = addresses_for_ranks(ranks_of());
  EXPECT_EQ(addresses,
            world_rank() == 0 ? std::vector<std::string>{"127.0.0.1"} : std::vector<std::string>{});
}

TEST(Rendezvous, PassesWithoutErrors) { EXPECT_NO_THROW(raise_first(ranks_of(), std::nullopt)); }

TEST(Rendezvous, ThrowsTheSameOnAllRanks) {
  const ErrorMessage mine{"watchdog", "expected a port", "refused; twice"};
  try {
    raise_first(ranks_of(), world_rank() == last_rank() ? std::optional(mine) : std::nullopt);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[watchdog] expected a port; refused; twice");
    EXPECT_EQ(error.category(), ErrorCategory::communication);
  }
}

TEST(Rendezvous, ThrowsTheErrorOfTheLowestRank) {
  try {
    raise_first(ranks_of(), ErrorMessage{"watchdog", "expected a port",
                                         fmt::format("rank {} has none", world_rank())});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[watchdog] expected a port; rank 0 has none");
  }
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
