// Runs the tests on every rank at once. Only rank 0 reports success; each rank reports its failures, and any of them
// fails the job.
#include <gtest/gtest.h>
#include <mpi.h>

#include <iostream>
#include <memory>
#include <string>

namespace {

class FailuresOfRank final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOfRank(int rank) : rank_(rank) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + '.' + test.name();
  }

  // Called under googletest's lock: asking it for the current test here would wait for ever.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cerr << "rank " << rank_ << ": " << test_ << ": " << (result.file_name() != nullptr ? result.file_name() : "?")
              << ':' << result.line_number() << ": " << result.message() << std::endl;
  }

 private:
  int rank_;
  std::string test_;
};

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  if (level < MPI_THREAD_SERIALIZED) {
    std::cerr << "this MPI library serves one thread only\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    std::unique_ptr<::testing::TestEventListener> success(listeners.Release(listeners.default_result_printer()));
    listeners.Append(new FailuresOfRank(rank));
  }
  int failed = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
