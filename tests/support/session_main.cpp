// Runs the tests on every rank at once. Rank 0 reports success; each rank reports its failures, and
// any of them fails the job.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/mpi_listener.h"
#include "tests/support/mpi_session.h"

namespace {

lockstep::job::Session* session_of_main = nullptr;

}  // namespace

namespace lockstep::inline v0::job {

Session& mpi_session() { return *session_of_main; }

}  // namespace lockstep::inline v0::job

int main(int argc, char** argv) {
  lockstep::job::Session session(argc, argv, {.quiet = true});
  session_of_main = &session;
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::listen_as_rank(session.rank());
  const std::vector<std::string> failed = session.all_gather(std::to_string(RUN_ALL_TESTS()));
  return std::ranges::all_of(failed, [](const std::string& status) { return status == "0"; }) ? 0
                                                                                              : 1;
}
