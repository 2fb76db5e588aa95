// Runs the tests on every rank at once. Rank 0 reports success; each rank reports its failures, and any of them fails
// the job.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "tests/support/mpi_session.h"

namespace {

lockstep::job::Session* session_of_main = nullptr;

class FailuresOfRank final : public ::testing::EmptyTestEventListener {
 public:
  // The list of tests is locked while a result is told.
  void OnTestStart(const ::testing::TestInfo& test) override { test_ = test.name(); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << session_of_main->rank() << ": " << test_ << ": " << result.file_name() << ':'
              << result.line_number() << ": " << result.message() << std::endl;
  }

 private:
  std::string test_;
};

}  // namespace

namespace lockstep::job {

Session& mpi_session() { return *session_of_main; }

}  // namespace lockstep::job

int main(int argc, char** argv) {
  lockstep::job::Session session(argc, argv, {.quiet = true});
  session_of_main = &session;
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (!session.is_chief()) {
    const std::unique_ptr<::testing::TestEventListener> silenced(listeners.Release(listeners.default_result_printer()));
    listeners.Append(new FailuresOfRank);
  }
  const std::vector<std::string> failed = session.all_gather(std::to_string(RUN_ALL_TESTS()));
  return std::ranges::all_of(failed, [](const std::string& status) { return status == "0"; }) ? 0 : 1;
}
